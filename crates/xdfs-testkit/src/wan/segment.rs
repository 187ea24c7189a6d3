//! Segments that the system hands over as one: what they are on the wire, and how to cut them.
//!
//! With offload a device gives TCP and UDP data in segments of up to 64 KiB, each behind a header
//! of ten bytes (`struct virtio_net_hdr`) that says how to cut it into packets. It also takes
//! them in this form. So they are passed on as they are, unless some of the packets they stand
//! for are lost: then what is left goes on as one segment for each run of packets.

use std::ops::Range;

/// Bytes of the header in front of each packet.
pub(super) const HEADER: usize = 10;

/// The checksum field holds the sum of the pseudo header only.
const NEEDS_CHECKSUM: u8 = 0x01;

const TCP_V4: u8 = 0x01;
const TCP_V6: u8 = 0x04;
const UDP: u8 = 0x05;
/// Set beside TCP's numbers where the congestion window was reduced.
const ECN: u8 = 0x80;

const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How a segment is cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a packet's headers, IP and what is in it.
    headers: usize,
    /// Where the header of TCP or UDP begins, behind that of IP.
    transport: usize,
    tcp: bool,
    /// Payload of each packet but the last.
    size: usize,
    payload: usize,
}

impl Shape {
    /// The shape of a frame (header and packet), if it stands for several packets.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let (header, packet) = frame.split_at_checked(HEADER)?;
        let kind = header[1] & !ECN;
        let tcp = kind == TCP_V4 || kind == TCP_V6;
        if !(tcp || kind == UDP) || header[0] & NEEDS_CHECKSUM == 0 {
            return None;
        }
        let transport = usize::from(native(header, 6)?);
        let size = usize::from(native(header, 4)?);
        let internet = match packet.first()? >> 4 {
            4 => usize::from(packet[0] & 0xf) * 4,
            6 => 40,
            _ => return None,
        };
        let own = if tcp {
            usize::from(packet.get(transport + 12)? >> 4) * 4
        } else {
            8
        };
        let headers = transport + own;
        let payload = packet.len().checked_sub(headers)?;
        let least = if tcp { 20 } else { 8 };
        let whole = transport >= internet && internet >= 20 && own >= least;
        (whole && size > 0 && payload > size).then_some(Self {
            headers,
            transport,
            tcp,
            size,
            payload,
        })
    }

    /// How many packets it stands for; at least 2.
    pub(super) fn packets(&self) -> usize {
        self.payload.div_ceil(self.size)
    }

    fn payload_of(&self, packets: &Range<usize>) -> Range<usize> {
        let at = |packet: usize| packet.saturating_mul(self.size).min(self.payload);
        at(packets.start)..at(packets.end)
    }

    /// Bytes on the wire of some of its packets, counted from 0.
    pub(super) fn wire(&self, packets: &Range<usize>) -> usize {
        packets.len() * self.headers + self.payload_of(packets).len()
    }

    /// Writes a frame that stands for some of the packets of `frame` into `out`, and says how
    /// long it is. `None` if it doesn't fit, or if `frame` doesn't have this shape.
    pub(super) fn cut(
        &self,
        frame: &[u8],
        packets: &Range<usize>,
        out: &mut [u8],
    ) -> Option<usize> {
        let range = self.payload_of(packets);
        let payload = frame.get(HEADER + self.headers..)?.get(range.clone())?;
        let len = HEADER + self.headers + payload.len();
        let out = out.get_mut(..len)?;
        let (head, body) = out.split_at_mut(HEADER + self.headers);
        head.copy_from_slice(frame.get(..HEADER + self.headers)?);
        body.copy_from_slice(payload);
        let (header, packet) = head.split_at_mut(HEADER);
        header[2..4].copy_from_slice(&to_native(u16::try_from(self.headers).ok()?));
        if packets.len() == 1 {
            header[1] = 0;
            header[4..6].copy_from_slice(&to_native(0));
        }
        let (internet, transport) = packet.split_at_mut(self.transport);
        let transport_len = transport.len() + payload.len();
        let protocol = if self.tcp {
            let sequence = u32::from_be_bytes(*transport[4..].first_chunk()?);
            let sequence = sequence.wrapping_add(u32::try_from(range.start).ok()?);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if packets.end < self.packets() {
                transport[13] &= !(FIN | PSH);
            }
            if packets.start > 0 {
                transport[13] &= !CWR;
            }
            TCP
        } else {
            let udp_len = u16::try_from(transport_len).ok()?;
            transport[4..6].copy_from_slice(&udp_len.to_be_bytes());
            17
        };
        let addresses = fix_internet(internet, transport_len, packets.start)?;
        let sum = sum(addresses) + u64::from(protocol) + u64::try_from(transport_len).ok()?;
        let checksum = if self.tcp { 16 } else { 6 };
        transport[checksum..checksum + 2].copy_from_slice(&fold(sum).to_be_bytes());
        Some(len)
    }
}

/// Sets what depends on length and number in an IP header; gives the two addresses.
fn fix_internet(header: &mut [u8], transport_len: usize, number: usize) -> Option<&[u8]> {
    if header.first()? >> 4 == 6 {
        let len = u16::try_from(header.len() - 40 + transport_len).ok()?;
        header[4..6].copy_from_slice(&len.to_be_bytes());
        return header.get(8..40);
    }
    let len = u16::try_from(header.len() + transport_len).ok()?;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let id = u16::from_be_bytes(*header[4..].first_chunk()?);
    let id = id.wrapping_add(u16::try_from(number).ok()?);
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[10..12].fill(0);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header.get(12..20)
}

/// The sum of the Internet checksum (RFC 1071), not folded yet. `bytes` has an even length.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks_exact(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1]))
        .sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Not more than 16 bits are left.
    u16::try_from(sum).unwrap_or(0)
}

#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel's header is in the order of the machine"
)]
fn native(header: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*header.get(at..)?.first_chunk()?))
}

#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel's header is in the order of the machine"
)]
fn to_native(number: u16) -> [u8; 2] {
    number.to_ne_bytes()
}

/// Whether a router would pass the packet on: multicast and link-local traffic stays where it is.
pub(super) fn is_routed(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet
            .get(16)
            .is_some_and(|first| !(224..=239).contains(first)),
        Some(6) => packet.get(24..26).is_some_and(|target| {
            target[0] != 0xff && !(target[0] == 0xfe && target[1] & 0xc0 == 0x80)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::random_bytes;

    /// A frame with `payload` bytes in packets of `size`, as the kernel gives it.
    fn frame(v6: bool, tcp: bool, size: u16, payload: usize) -> Vec<u8> {
        let (internet, transport) = (if v6 { 40 } else { 24 }, if tcp { 32 } else { 8 });
        let inner = transport + payload;
        let mut frame = vec![0; HEADER + internet + transport];
        let kind = match (tcp, v6) {
            (true, false) => TCP_V4 | ECN,
            (true, true) => TCP_V6,
            (false, _) => UDP,
        };
        frame[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind]);
        frame[4..6].copy_from_slice(&to_native(size));
        frame[6..8].copy_from_slice(&to_native(u16::try_from(internet).unwrap()));
        frame[8..10].copy_from_slice(&to_native(if tcp { 16 } else { 6 }));
        let ip = &mut frame[HEADER..];
        let protocol = if tcp { TCP } else { 17 };
        if v6 {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&u16::try_from(inner).unwrap().to_be_bytes());
            ip[6] = protocol;
            ip[8..40].copy_from_slice(&random_bytes(1, 32));
        } else {
            // With options of four bytes.
            ip[0] = 0x46;
            let len = u16::try_from(internet + inner).unwrap();
            ip[2..4].copy_from_slice(&len.to_be_bytes());
            ip[4..6].copy_from_slice(&0xffff_u16.to_be_bytes());
            ip[9] = protocol;
            ip[12..24].copy_from_slice(&random_bytes(2, 12));
        }
        if tcp {
            ip[internet + 4..internet + 8].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
            ip[internet + 12] = 0x80;
            ip[internet + 13] = CWR | 0x10 | PSH | FIN;
        }
        frame.extend(random_bytes(3, payload));
        frame
    }

    /// Checks a cut frame without the code under test, and gives its payload.
    fn check(cut: &[u8], v6: bool, tcp: bool, packets: &Range<usize>, size: usize) -> Vec<u8> {
        let ip = &cut[HEADER..];
        let internet = if v6 { 40 } else { 24 };
        let big = |at: usize| usize::from(ip[at]) << 8 | usize::from(ip[at + 1]);
        let add = |at: Range<usize>| at.step_by(2).map(big).sum::<usize>();
        let inner = ip.len() - internet;
        let addresses = if v6 {
            assert_eq!(big(4), inner);
            8..40
        } else {
            assert_eq!(big(2), ip.len());
            assert_eq!(big(4), (0xffff + packets.start) % 0x1_0000);
            assert_eq!(add(0..24) % 0xffff, 0, "checksum of the header");
            12..20
        };
        let pseudo = add(addresses) + inner + if tcp { 6 } else { 17 };
        let checksum = big(internet + if tcp { 16 } else { 6 });
        assert_eq!(pseudo % 0xffff, checksum % 0xffff);
        assert_eq!(cut[0], NEEDS_CHECKSUM);
        let single = packets.len() == 1;
        assert_eq!(cut[1] == 0, single);
        assert_eq!(
            native(cut, 4).map(usize::from),
            Some(if single { 0 } else { size })
        );
        if tcp {
            let sequence = u32::from_be_bytes(*ip[internet + 4..].first_chunk().unwrap());
            let offset = u32::try_from(packets.start * size).unwrap();
            assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add(offset));
        } else {
            assert_eq!(big(internet + 4), inner);
        }
        ip[internet + if tcp { 32 } else { 8 }..].to_vec()
    }

    #[test]
    fn cut_packets_are_whole() {
        for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
            let frame = frame(v6, tcp, 1000, 3500);
            let shape = Shape::of(&frame).unwrap();
            assert_eq!(shape.packets(), 4);
            let headers = if v6 { 40 } else { 24 } + if tcp { 32 } else { 8 };
            assert_eq!(shape.wire(&(0..4)), 4 * headers + 3500);
            assert_eq!(shape.wire(&(3..4)), headers + 500);
            for runs in [
                vec![0..1, 1..2, 2..3, 3..4],
                vec![0..2, 2..4],
                vec![0..3, 3..4],
            ] {
                let mut payload = Vec::new();
                for run in runs {
                    let mut out = vec![0xee; frame.len()];
                    let len = shape.cut(&frame, &run, &mut out).unwrap();
                    payload.extend(check(&out[..len], v6, tcp, &run, 1000));
                    let again = Shape::of(&out[..len]).map_or(1, |shape| shape.packets());
                    assert_eq!(again, run.len());
                    let mut small = vec![0; len - 1];
                    assert_eq!(shape.cut(&frame, &run, &mut small), None);
                }
                assert!(payload == random_bytes(3, 3500));
            }
        }
    }

    #[test]
    fn flags_stay_with_their_packets() {
        let frame = frame(false, true, 1000, 3000);
        let shape = Shape::of(&frame).unwrap();
        let flags = |run: Range<usize>| {
            let mut out = vec![0; frame.len()];
            shape.cut(&frame, &run, &mut out).unwrap();
            out[HEADER + 24 + 13]
        };
        assert_eq!(flags(0..1), CWR | 0x10);
        assert_eq!(flags(1..2), 0x10);
        assert_eq!(flags(1..3), 0x10 | PSH | FIN);
    }

    #[test]
    fn single_packets_and_nonsense_have_no_shape() {
        let whole = frame(false, true, 1000, 3500);
        assert_eq!(Shape::of(&frame(false, true, 1000, 1000)), None);
        assert_eq!(Shape::of(&frame(false, true, 0, 1000)), None);
        let mut single = whole.clone();
        single[1] = 0;
        assert_eq!(Shape::of(&single), None);
        for len in 0..HEADER + 56 {
            assert_eq!(Shape::of(&whole[..len]), None);
        }
        // No header makes it panic or write outside.
        for at in 0..HEADER + 56 {
            for value in [0, 0x0f, 0x45, 0x60, 0xff] {
                let mut odd = whole.clone();
                odd[at] = value;
                if let Some(shape) = Shape::of(&odd) {
                    let mut out = vec![0; whole.len()];
                    let last = shape.packets() - 1;
                    let _ = shape.cut(&odd, &(last..last + 1), &mut out);
                }
            }
        }
    }

    #[test]
    fn routers_keep_local_traffic() {
        let v4 = |first| {
            let mut packet = vec![0x45; 20];
            packet[16] = first;
            packet
        };
        assert!(is_routed(&v4(10)) && is_routed(&v4(240)));
        assert!(!is_routed(&v4(224)) && !is_routed(&v4(239)));
        let v6 = |first, second| {
            let mut packet = vec![0x60; 40];
            packet[24..26].copy_from_slice(&[first, second]);
            packet
        };
        assert!(is_routed(&v6(0xfd, 0x77)) && is_routed(&v6(0xfe, 0xc0)));
        assert!(!is_routed(&v6(0xff, 2)) && !is_routed(&v6(0xfe, 0x80)));
        assert!(!is_routed(&[]) && !is_routed(&[0x45]) && !is_routed(&[0; 40]));
    }
}
