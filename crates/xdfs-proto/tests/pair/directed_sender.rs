//! What a sender sends, refuses and answers, rule by rule. The numbers are those of the
//! specification.

use std::time::Duration;

use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::frame::{
    Accept, Ack, Cancel, Eofr, Exception, Offer, Published, Repeat, Resume, TimeAccount,
};
use xdfs_proto::limits::HOLE_BYTES_MAX;
use xdfs_proto::sender::{Extent, Sender, SenderOutput};
use xdfs_proto::{
    ByteRange, ChannelIndex, Code, Fault, FileId, Frame, Limits, NumberUse, SourceTag,
};

use crate::store::hash;

const BLOCK: u64 = 1024;
const KIND: DigestKind = DigestKind::Crc64Nvme;
const A: ChannelIndex = ChannelIndex(0);
const B: ChannelIndex = ChannelIndex(1);
const NOW: Duration = Duration::ZERO;
const FILE: FileId = FileId(1);

fn offer(file: u32, length: Option<u64>) -> Offer {
    Offer {
        file: FileId(file),
        path: b"target".to_vec(),
        name: Vec::new(),
        length,
        tag: SourceTag([1; 16]),
        mode: None,
        mtime_ns: None,
        digest: KIND,
        overwrite: false,
        resume: Resume::Trust,
        dry_run: false,
        pack: false,
        sparse: false,
        relaxed: false,
        last: None,
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn accept(block_size: u32, durable: &[(u64, u64)]) -> Frame {
    let durable = durable
        .iter()
        .map(|&(start, end)| hash(KIND, start, &vec![0; (end - start) as usize]).1)
        .collect();
    Frame::Accept(Accept {
        file: FILE,
        path: Vec::new(),
        block_size,
        durable,
    })
}

fn offered(length: Option<u64>) -> Sender {
    let mut sender = Sender::new(Limits::default(), 1 << 40);
    sender.channel_up(A, NOW);
    sender.channel_up(B, NOW);
    sender.offer(offer(1, length), true);
    outputs(&mut sender);
    sender
}

fn accepted(length: Option<u64>) -> Sender {
    let mut sender = offered(length);
    sender
        .handle_frame(A, accept(BLOCK as u32, &[]), NOW)
        .expect("an answer");
    outputs(&mut sender);
    sender
}

fn outputs(sender: &mut Sender) -> Vec<SenderOutput> {
    std::iter::from_fn(|| sender.poll_output()).collect()
}

fn frames(sender: &mut Sender) -> Vec<Frame> {
    outputs(sender)
        .into_iter()
        .filter_map(|o| match o {
            SenderOutput::Transmit(frame) => Some(frame),
            _ => None,
        })
        .collect()
}

/// Sends the next block, of zeros.
fn send(sender: &mut Sender, on: ChannelIndex) -> Extent {
    let extent = sender.next_extent(on).expect("something to send");
    let bytes = vec![0; extent.range.len() as usize];
    if !extent.is_resend {
        sender.extent_read(extent.file, hash(KIND, extent.range.start, &bytes).1);
    }
    sender.assign(on, extent, NOW);
    extent
}

fn ack(sender: &mut Sender, on: ChannelIndex, data_frames: u64) -> Result<(), Fault> {
    sender.handle_frame(on, Frame::Ack(Ack { data_frames }), NOW)
}

fn repeat(sender: &mut Sender, start: u64, end: u64) -> Result<(), Fault> {
    let range = range(start, end);
    sender.handle_frame(A, Frame::Repeat(Repeat { file: FILE, range }), NOW)
}

fn published(length: u64, digest: DigestValue) -> Frame {
    Frame::Published(Published {
        file: FILE,
        length,
        digest,
        time: TimeAccount::default(),
        failures: xdfs_proto::pack::Failures::default(),
    })
}

fn zeros(length: u64) -> DigestValue {
    let bytes = vec![0; length as usize];
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes);
    DigestValue::Crc64Nvme(crc)
}

#[track_caller]
fn violates<T: std::fmt::Debug>(result: Result<T, Fault>) {
    let fault = result.expect_err("a violation");
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn x4_nothing_is_sent_before_accept() {
    let mut sender = offered(Some(BLOCK));
    assert_eq!(sender.next_extent(A), None);
    violates(repeat(&mut sender, 0, BLOCK));
    violates(sender.handle_frame(A, published(BLOCK, zeros(BLOCK)), NOW));
}

#[test]
fn x8_blocks_are_cut_on_the_grid() {
    let mut sender = accepted(Some(2 * BLOCK + 7));
    let sent: Vec<ByteRange> = (0..3).map(|_| send(&mut sender, A).range).collect();
    assert_eq!(
        sent,
        [
            range(0, BLOCK),
            range(BLOCK, 2 * BLOCK),
            range(2 * BLOCK, 2 * BLOCK + 7)
        ]
    );
    assert_eq!(sender.next_extent(A), None);
}

#[test]
fn x15_long_holes_are_cut_and_what_follows_is_on_the_grid() {
    let length = 3 * HOLE_BYTES_MAX + 5;
    let mut sender = accepted(Some(length));
    let mut holes = Vec::new();
    while let Some(extent) = sender.next_extent(A) {
        let wide = sender.widen_hole(extent, length);
        sender.hole_read(FILE, wide);
        sender.assign(
            A,
            Extent {
                range: wide,
                ..extent
            },
            NOW,
        );
        holes.push(wide.len());
    }
    let max = HOLE_BYTES_MAX;
    assert_eq!(holes, [max, max, max, 5]);
    // An end of the hole within a block is rounded down to it.
    let mut sender = accepted(Some(length));
    let extent = sender.next_extent(A).expect("the first block");
    assert_eq!(
        sender.widen_hole(extent, 3 * BLOCK - 1),
        range(0, 2 * BLOCK)
    );
}

#[test]
fn x17_an_ack_is_not_above_what_was_sent() {
    let mut sender = accepted(Some(3 * BLOCK));
    send(&mut sender, A);
    send(&mut sender, B);
    violates(ack(&mut sender, A, 2));
}

#[test]
fn x17_an_ack_does_not_fall() {
    let mut sender = accepted(Some(3 * BLOCK));
    send(&mut sender, A);
    send(&mut sender, A);
    ack(&mut sender, A, 2).expect("both");
    ack(&mut sender, A, 2).expect("the same again");
    violates(ack(&mut sender, A, 1));
    assert_eq!(sender.in_flight(), 0);
}

#[test]
fn x19_what_is_asked_for_again_goes_again() {
    let mut sender = accepted(Some(2 * BLOCK));
    send(&mut sender, A);
    send(&mut sender, A);
    repeat(&mut sender, BLOCK, 2 * BLOCK).expect("it was sent");
    let extent = send(&mut sender, B);
    assert!(extent.is_resend);
    assert_eq!(extent.range, range(BLOCK, 2 * BLOCK));
    ack(&mut sender, A, 2).expect("both");
    ack(&mut sender, B, 1).expect("again");
    assert_eq!(sender.progress(FILE), 2 * BLOCK);
}

#[test]
fn x21_only_what_was_sent_is_asked_for_again() {
    let mut sender = accepted(Some(4 * BLOCK));
    send(&mut sender, A);
    violates(repeat(&mut sender, BLOCK, 2 * BLOCK));
    violates(repeat(&mut sender, 0, 2 * BLOCK));
    violates(repeat(&mut sender, BLOCK, BLOCK));
    // Nor a part of a block, which would leave the grid.
    violates(repeat(&mut sender, 0, 512));
    violates(repeat(&mut sender, 512, BLOCK));
}

#[test]
fn x21_what_was_durable_before_is_not_asked_for() {
    let mut sender = offered(Some(2 * BLOCK));
    sender
        .handle_frame(A, accept(BLOCK as u32, &[(0, BLOCK)]), NOW)
        .expect("an answer");
    violates(repeat(&mut sender, 0, BLOCK));
}

#[test]
fn x23_repeat_is_possible_after_eofr() {
    let mut sender = accepted(Some(BLOCK));
    send(&mut sender, A);
    assert!(matches!(frames(&mut sender)[..], [Frame::Eofr(_)]));
    repeat(&mut sender, 0, BLOCK).expect("before PUBLISHED");
    assert!(send(&mut sender, A).is_resend);
}

#[test]
fn x19_the_short_end_of_a_stream_can_be_asked_for() {
    let mut sender = accepted(None);
    let mut extent = sender.next_extent(A).expect("a block");
    extent.range.end = 100;
    sender.extent_read(FILE, hash(KIND, 0, &[0; 100]).1);
    sender.assign(A, extent, NOW);
    repeat(&mut sender, 0, 100).expect("a whole block");
    assert_eq!(sender.next_extent(A).map(|e| e.range), Some(range(0, 100)));
    // What is taken next tells where the stream ended.
    assert_eq!(sender.cursor(FILE), 100);
    sender.source_ended(FILE, 100);
    assert!(matches!(
        frames(&mut sender)[..],
        [Frame::Eofr(Eofr { length: 100, .. })]
    ));
    // Its end doesn't change any more.
    sender.source_ended(FILE, 5);
    assert_eq!(frames(&mut sender), []);
}

/// Found by the fuzz target `sender`.
#[test]
fn x14_a_source_does_not_end_before_what_was_read_of_it() {
    let mut sender = accepted(None);
    send(&mut sender, A);
    let lost = sender.next_extent(A).expect("the second block");
    sender.put_back(lost);
    assert_eq!(sender.next_extent(A), Some(lost));
    sender.source_ended(FILE, 0);
    assert!(matches!(
        frames(&mut sender)[..],
        [Frame::Eofr(Eofr { length: BLOCK, .. })]
    ));
    // What was taken but not read is sent still.
    let mut sender = accepted(None);
    send(&mut sender, A);
    sender.next_extent(A).expect("the second block");
    sender.source_ended(FILE, 2 * BLOCK);
    assert_eq!(frames(&mut sender), []);
    assert_eq!(send(&mut sender, A).range, range(BLOCK, 2 * BLOCK));
    assert!(matches!(frames(&mut sender)[..], [Frame::Eofr(_)]));
}

#[test]
fn x24_eofr_comes_when_every_byte_is_assigned() {
    let mut sender = accepted(Some(2 * BLOCK));
    send(&mut sender, A);
    assert_eq!(frames(&mut sender), []);
    send(&mut sender, B);
    let eofr = Frame::Eofr(Eofr {
        file: FILE,
        length: 2 * BLOCK,
        digest: zeros(2 * BLOCK),
        time: TimeAccount::default(),
    });
    assert_eq!(frames(&mut sender), [eofr]);
}

#[test]
fn x28_published_comes_after_the_end() {
    let mut sender = accepted(Some(2 * BLOCK));
    send(&mut sender, A);
    violates(sender.handle_frame(A, published(2 * BLOCK, zeros(2 * BLOCK)), NOW));
}

#[test]
fn x29_published_is_compared() {
    let cases = [
        published(BLOCK, zeros(1)),
        published(BLOCK + 1, zeros(BLOCK)),
        published(BLOCK, DigestValue::None),
    ];
    for frame in cases {
        let mut sender = accepted(Some(BLOCK));
        send(&mut sender, A);
        sender.handle_frame(A, frame, NOW).expect("the end");
        let said = outputs(&mut sender);
        let Some(SenderOutput::Failed { fault, .. }) = said.last() else {
            panic!("{said:?}");
        };
        assert_eq!(fault.code, Code::IntegrityMismatch);
    }
}

#[test]
fn x55_a_download_is_resumed_whatever_its_offer_says() {
    let mut sender = Sender::new(Limits::default(), 1 << 40);
    sender.channel_up(A, NOW);
    let offer = Offer {
        resume: Resume::Never,
        ..offer(1, Some(4 * BLOCK))
    };
    sender.offer(offer, false);
    sender
        .handle_frame(A, accept(BLOCK as u32, &[(0, 3 * BLOCK)]), NOW)
        .expect("the user over there wants it");
    assert_eq!(send(&mut sender, A).range, range(3 * BLOCK, 4 * BLOCK));
}

#[test]
fn x31_what_can_not_be_recognised_is_not_resumed() {
    for (tag, resume) in [(0, Resume::Trust), (1, Resume::Never)] {
        let mut sender = Sender::new(Limits::default(), 1 << 40);
        let offer = Offer {
            tag: SourceTag([tag; 16]),
            resume,
            ..offer(1, Some(2 * BLOCK))
        };
        sender.offer(offer, true);
        violates(sender.handle_frame(A, accept(BLOCK as u32, &[(0, BLOCK)]), NOW));
    }
}

#[test]
fn x32_durable_ranges_are_not_sent() {
    let mut sender = offered(Some(3 * BLOCK));
    sender
        .handle_frame(A, accept(BLOCK as u32, &[(BLOCK, 2 * BLOCK)]), NOW)
        .expect("an answer");
    assert_eq!(send(&mut sender, A).range, range(0, BLOCK));
    assert_eq!(send(&mut sender, A).range, range(2 * BLOCK, 3 * BLOCK));
    assert!(matches!(
        frames(&mut sender)[..],
        [Frame::Eofr(Eofr { digest, .. })] if digest == zeros(3 * BLOCK)
    ));
    // Where the length isn't known, too.
    let mut sender = offered(None);
    sender
        .handle_frame(A, accept(BLOCK as u32, &[(BLOCK, 3 * BLOCK)]), NOW)
        .expect("an answer");
    assert_eq!(send(&mut sender, A).range, range(0, BLOCK));
    assert_eq!(send(&mut sender, A).range, range(3 * BLOCK, 4 * BLOCK));
}

#[test]
fn x33_durable_ranges_lie_on_the_grid_and_within() {
    for durable in [
        &[(0, 512)][..],
        &[(512, BLOCK)],
        &[(0, 4 * BLOCK)],
        &[(0, BLOCK), (0, BLOCK)],
        &[(0, 2 * BLOCK), (BLOCK, 2 * BLOCK)],
    ] {
        let mut sender = offered(Some(2 * BLOCK));
        violates(sender.handle_frame(A, accept(BLOCK as u32, durable), NOW));
    }
}

#[test]
fn f13_the_block_size_is_a_power_of_two_within_the_session_s() {
    for size in [0, 1, 512, 1025, 3072, 8192, 1 << 31] {
        let mut sender = offered(Some(BLOCK));
        sender.set_block_size_max(4096);
        violates(sender.handle_frame(A, accept(size, &[]), NOW));
    }
}

#[test]
fn s17_a_lost_channel_s_blocks_go_again_on_others() {
    let mut sender = accepted(Some(3 * BLOCK));
    send(&mut sender, A);
    send(&mut sender, A);
    send(&mut sender, B);
    ack(&mut sender, A, 1).expect("the first");
    outputs(&mut sender);
    sender.channel_down(A);
    assert_eq!(sender.in_flight(), BLOCK);
    let extent = send(&mut sender, B);
    assert_eq!(
        (extent.range, extent.is_resend),
        (range(BLOCK, 2 * BLOCK), true)
    );
    assert_eq!(sender.next_extent(A), None);
    // A block for a channel that is gone goes again as well.
    sender.channel_down(B);
    let extent = sender.next_extent(A).expect("lost again");
    sender.assign(B, extent, NOW);
    assert_eq!(sender.in_flight(), 0);
    assert_eq!(sender.next_extent(A), Some(extent));
}

#[test]
fn s18_what_waits_for_an_answer_is_said_again() {
    let mut sender = offered(Some(BLOCK));
    sender.channel_down(A);
    assert!(matches!(frames(&mut sender)[..], [Frame::Xftsmu(_)]));
    sender
        .handle_frame(B, accept(BLOCK as u32, &[]), NOW)
        .expect("an answer");
    sender
        .handle_frame(B, accept(BLOCK as u32, &[]), NOW)
        .expect("the same answer");
    send(&mut sender, B);
    outputs(&mut sender);
    sender.channel_down(B);
    assert!(matches!(frames(&mut sender)[..], [Frame::Eofr(_)]));
}

#[test]
fn s18_a_file_that_is_over_is_over_whatever_order_frames_come_in() {
    let mut sender = offered(Some(BLOCK));
    let fault = Fault::new(Code::SourceChanged, "read", "it shrank");
    sender.fail(FILE, fault);
    let word = frames(&mut sender);
    assert!(matches!(word[..], [Frame::Exception(_)]));
    // The receiver got the offer after that word, and opened the file.
    sender
        .handle_frame(A, accept(BLOCK as u32, &[]), NOW)
        .expect("late");
    assert_eq!(frames(&mut sender), word);
    sender.channel_down(B);
    assert_eq!(frames(&mut sender), word);
    assert!(sender.was_offered(FILE) && !sender.was_offered(FileId(2)));
    // Found by the fuzz target `sender`: the number that names no file could be used for ever.
    assert!(sender.was_offered(FileId(0)));
}

#[test]
fn s18_a_refused_request_is_refused_once() {
    let mut sender = Sender::new(Limits::default(), 1);
    sender.channel_up(A, NOW);
    let fault = Fault::new(Code::NotFound, "open", "no such file");
    sender.refuse(FILE, &fault);
    let word = frames(&mut sender);
    sender.channel_down(A);
    assert_eq!(frames(&mut sender), word);
    assert!(sender.was_offered(FILE));
}

/// A number is of one file, in whichever direction it moves.
#[test]
fn x1_a_number_of_the_other_direction_is_known_or_forgotten() {
    let mut sender = accepted(Some(BLOCK));
    assert_eq!(sender.number_use(FILE), NumberUse::Known);
    assert_eq!(sender.number_use(FileId(2)), NumberUse::New);
    violates(sender.number_use(FILE).answer(FILE));
    // Its final answer is kept, and then it isn't.
    sender.fail(FILE, Fault::new(Code::Io, "read", "it is gone"));
    assert_eq!(sender.number_use(FILE), NumberUse::Known);
    for number in 2..=65 {
        let fault = Fault::new(Code::NotFound, "open", "no such file");
        sender.refuse(FileId(number), &fault);
    }
    assert_eq!(sender.number_use(FILE), NumberUse::Forgotten);
    sender.refuse(
        FileId(u32::MAX),
        &Fault::new(Code::NotFound, "open", "none"),
    );
    let answer = sender.number_use(FileId(1000)).answer(FileId(1000));
    assert!(matches!(
        answer,
        Ok(Some(Frame::Exception(Exception { fault, .. }))) if fault.code == Code::LimitExceeded
    ));
    let limit = u32::MAX - Limits::default().file_numbers_kept;
    assert_eq!(sender.number_use(FileId(limit)), NumberUse::Forgotten);
    assert_eq!(sender.number_use(FileId(limit + 1)), NumberUse::New);
}

/// A sender that has sent all of file 1 and its end.
fn ended() -> Sender {
    let mut sender = accepted(Some(BLOCK));
    send(&mut sender, A);
    outputs(&mut sender);
    sender
}

fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, "send the file", "stopped by the user")
}

#[test]
fn x51_a_file_cancelled_after_its_end_is_what_the_receiver_says() {
    let cancel = Frame::Cancel(Cancel { file: FILE });
    let answers = [
        (published(BLOCK, zeros(BLOCK)), true),
        (cancel.clone(), false),
    ];
    for (answer, is_published) in answers {
        let mut sender = ended();
        sender.fail(FILE, cancelled());
        assert_eq!(
            outputs(&mut sender),
            [SenderOutput::Transmit(cancel.clone())]
        );
        assert!(!sender.is_idle());
        // A second word of this side changes nothing, and nothing is sent any more.
        sender.fail(FILE, Fault::new(Code::SourceChanged, "read", "it shrank"));
        repeat(&mut sender, 0, BLOCK).expect("it crossed the cancel");
        assert_eq!(sender.next_extent(A), None);
        assert_eq!(outputs(&mut sender), []);
        // What may be lost is said again, with the end: the receiver may have forgotten the file.
        sender.channel_down(B);
        let said = frames(&mut sender);
        assert!(
            matches!(&said[..], [Frame::Eofr(_), again] if *again == cancel),
            "{said:?}"
        );
        sender.handle_frame(A, answer, NOW).expect("an answer");
        match &outputs(&mut sender)[..] {
            [SenderOutput::Finished { .. }] => assert!(is_published),
            [SenderOutput::Failed { fault, .. }] => {
                assert_eq!((is_published, fault), (false, &cancelled()))
            }
            other => panic!("{other:?}"),
        }
        assert!(sender.is_idle());
    }
}

#[test]
fn x51_before_its_end_was_sent_a_file_is_over_at_once() {
    let mut sender = accepted(Some(2 * BLOCK));
    send(&mut sender, A);
    sender.fail(FILE, cancelled());
    assert!(matches!(
        outputs(&mut sender)[..],
        [
            SenderOutput::Transmit(Frame::Cancel(_)),
            SenderOutput::Failed { .. }
        ]
    ));
    sender.fail(FILE, cancelled());
    assert_eq!(outputs(&mut sender), []);
}

#[test]
fn x51_a_pack_that_is_cancelled_ahead_of_accept_is_offered_again_with_it() {
    let mut sender = pack_offered(BLOCK);
    offers(&mut sender, A);
    send(&mut sender, A);
    outputs(&mut sender);
    sender.fail(FILE, cancelled());
    assert!(matches!(frames(&mut sender)[..], [Frame::Cancel(_)]));
    sender.channel_down(A);
    let said = frames(&mut sender);
    assert!(
        matches!(said[..], [Frame::Xftsmu(_), Frame::Cancel(_)]),
        "{said:?}"
    );
    // The offer overtook the cancel.
    sender
        .handle_frame(B, accept(BLOCK as u32, &[]), NOW)
        .expect("an answer");
    assert!(matches!(frames(&mut sender)[..], [Frame::Cancel(_)]));
    assert!(sender.next_extent(B).is_none());
    let cancel = Frame::Cancel(Cancel { file: FILE });
    sender.handle_frame(B, cancel, NOW).expect("an answer");
    assert!(matches!(
        outputs(&mut sender)[..],
        [SenderOutput::Failed { .. }]
    ));
}

#[test]
fn m9_a_sender_tells_that_it_has_forgotten_a_file() {
    let limits = Limits {
        ended_files_kept: 1,
        ..Limits::default()
    };
    let mut sender = Sender::new(limits, 1);
    sender.channel_up(A, NOW);
    let fault = Fault::new(Code::NotFound, "open", "no such file");
    sender.refuse(FileId(1), &fault);
    outputs(&mut sender);
    let code = |sender: &mut Sender| match &frames(sender)[..] {
        [Frame::Exception(Exception { fault, .. })] => fault.code,
        other => panic!("{other:?}"),
    };
    sender.handle_repeated_request(FileId(1));
    assert_eq!(code(&mut sender), Code::NotFound);
    sender.refuse(FileId(2), &fault);
    outputs(&mut sender);
    sender.handle_repeated_request(FileId(1));
    assert_eq!(code(&mut sender), Code::LimitExceeded);
}

#[test]
fn m2_a_channel_that_progressed_is_not_closed_when_all_stall() {
    let stall = Limits::default().stall_timeout;
    let mut sender = accepted(Some(99 * BLOCK));
    send(&mut sender, A);
    send(&mut sender, A);
    for n in 1..=8 {
        send(&mut sender, B);
        ack(&mut sender, B, n).expect("B goes on");
    }
    send(&mut sender, B);
    outputs(&mut sender);
    // What B did before A's own progress is no sign that A stands still.
    let at = stall / 2;
    sender
        .handle_frame(A, Frame::Ack(Ack { data_frames: 1 }), at)
        .expect("A goes on");
    for n in 1..6 {
        sender.handle_timeout(at + n * stall);
        assert_eq!(outputs(&mut sender), []);
    }
}

#[test]
fn x19_what_is_asked_for_twice_before_it_went_counts_once() {
    let mut sender = accepted(Some(3 * BLOCK));
    for _ in 0..3 {
        send(&mut sender, A);
    }
    ack(&mut sender, A, 3).expect("all");
    assert_eq!(sender.progress(FILE), 3 * BLOCK);
    repeat(&mut sender, 0, BLOCK).expect("damaged");
    repeat(&mut sender, 0, BLOCK).expect("asked again after a lost channel");
    assert_eq!(sender.progress(FILE), 2 * BLOCK);
    assert!(send(&mut sender, A).is_resend);
    assert_eq!(sender.next_extent(A), None);
    ack(&mut sender, A, 4).expect("again");
    assert_eq!(sender.progress(FILE), 3 * BLOCK);
}

#[test]
fn x15_what_goes_again_is_not_widened() {
    let mut sender = accepted(Some(4 * BLOCK));
    send(&mut sender, A);
    repeat(&mut sender, 0, BLOCK).expect("damaged");
    let extent = sender.next_extent(A).expect("it goes again");
    assert!(extent.is_resend);
    // What follows was never read: as a part of what goes again its digest would be missing.
    assert_eq!(sender.widen_hole(extent, 4 * BLOCK), extent.range);
    sender.assign(A, extent, NOW);
    let next = sender.next_extent(A).expect("the rest");
    assert_eq!(
        (next.range, next.is_resend),
        (range(BLOCK, 2 * BLOCK), false)
    );
    assert_eq!(sender.widen_hole(next, 4 * BLOCK), range(BLOCK, 4 * BLOCK));
}

#[test]
fn x37_frames_of_files_that_are_over_are_ignored() {
    let mut sender = Sender::new(Limits::default(), 1);
    repeat(&mut sender, 0, BLOCK).expect("ignored");
    sender
        .handle_frame(A, published(0, zeros(0)), NOW)
        .expect("ignored");
    sender
        .handle_frame(A, Frame::Cancel(Cancel { file: FILE }), NOW)
        .expect("ignored");
    assert_eq!(outputs(&mut sender), []);
}

#[test]
fn m2_a_stalled_channel_is_closed_only_if_others_went_on() {
    let stall = Limits::default().stall_timeout;
    let mut sender = accepted(Some(9 * BLOCK));
    send(&mut sender, A);
    send(&mut sender, B);
    send(&mut sender, B);
    outputs(&mut sender);
    assert_eq!(sender.poll_timeout(), Some(stall));
    // Nobody progressed: the receiver is slow, not a channel.
    sender.handle_timeout(stall);
    assert_eq!(outputs(&mut sender), []);
    sender
        .handle_frame(B, Frame::Ack(Ack { data_frames: 1 }), stall * 3 / 2)
        .expect("B goes on");
    // B went on, and hasn't yet done so much that A must have had its turn.
    sender.handle_timeout(2 * stall);
    assert_eq!(outputs(&mut sender), []);
    sender
        .handle_frame(B, Frame::Ack(Ack { data_frames: 2 }), 2 * stall)
        .expect("B is done");
    sender.handle_timeout(5 * stall / 2);
    assert_eq!(outputs(&mut sender), []);
    sender.handle_timeout(4 * stall);
    assert_eq!(outputs(&mut sender), [SenderOutput::CloseChannel(A)]);
}

#[test]
fn m2_a_channel_that_others_overtake_twice_is_closed() {
    let stall = Limits::default().stall_timeout;
    let mut sender = accepted(Some(9 * BLOCK));
    send(&mut sender, A);
    for n in 1..=4 {
        send(&mut sender, B);
        ack(&mut sender, B, n).expect("B goes on");
    }
    send(&mut sender, B);
    outputs(&mut sender);
    // Two blocks are outstanding, and four were acknowledged since A was last heard of.
    sender.handle_timeout(stall);
    assert_eq!(outputs(&mut sender), []);
    ack(&mut sender, B, 5).expect("B goes on");
    send(&mut sender, B);
    sender.handle_timeout(2 * stall);
    assert_eq!(outputs(&mut sender), [SenderOutput::CloseChannel(A)]);
}

#[test]
fn m3_what_is_outstanding_is_bounded() {
    let mut sender = accepted(Some(99 * BLOCK));
    sender.set_in_flight_max(2 * BLOCK);
    send(&mut sender, A);
    send(&mut sender, B);
    assert_eq!(sender.next_extent(A), None);
    ack(&mut sender, B, 1).expect("one");
    assert!(sender.next_extent(A).is_some());
}

#[test]
fn frames_of_a_sender_are_not_for_a_sender() {
    let mut sender = accepted(Some(BLOCK));
    violates(sender.handle_frame(A, Frame::JoinOk, NOW));
    violates(sender.handle_frame(A, Frame::Eoft, NOW));
}

fn pack_offered(length: u64) -> Sender {
    let mut sender = Sender::new(Limits::default(), 1 << 40);
    sender.set_block_size_max(BLOCK as u32);
    sender.channel_up(A, NOW);
    sender.channel_up(B, NOW);
    let offer = Offer {
        tag: SourceTag::default(),
        resume: Resume::Never,
        pack: true,
        ..offer(1, Some(length))
    };
    sender.offer(offer, true);
    assert_eq!(outputs(&mut sender), []);
    assert_eq!(sender.next_extent(A), None);
    sender
}

fn offers(sender: &mut Sender, on: ChannelIndex) {
    assert!(matches!(sender.next_pack(on), Some(Frame::Xftsmu(_))));
    assert_eq!(sender.next_pack(on), None);
}

fn published_zeros(length: u64) -> Frame {
    let mut whole = xdfs_proto::digest::FragmentMap::new(KIND);
    assert!(whole.insert(hash(KIND, 0, &vec![0; length as usize]).1));
    published(length, whole.digest(length).expect("all of it"))
}

#[test]
fn k12_a_pack_follows_its_offer_on_the_same_channel() {
    let mut sender = pack_offered(BLOCK + 5);
    // Nothing is lost with a channel before it was offered.
    sender.channel_down(B);
    assert_eq!(outputs(&mut sender), []);
    sender.channel_up(B, NOW);
    offers(&mut sender, A);
    assert!(sender.is_ahead());
    assert_eq!(sender.next_extent(B), None);
    assert_eq!(send(&mut sender, A).range, range(0, BLOCK));
    assert_eq!(sender.next_extent(B), None);
    assert_eq!(send(&mut sender, A).range, range(BLOCK, BLOCK + 5));
    let end = outputs(&mut sender);
    let [SenderOutput::TransmitOn(A, Frame::Eofr(Eofr { length, .. }))] = &end[..] else {
        panic!("{end:?}");
    };
    assert_eq!(*length, BLOCK + 5);
    // PUBLISHED may overtake ACCEPT on another channel.
    let published = published_zeros(BLOCK + 5);
    sender.handle_frame(B, published, NOW).expect("the end");
    assert!(matches!(
        outputs(&mut sender)[..],
        [SenderOutput::Finished { .. }]
    ));
    let accept = accept(BLOCK as u32, &[]);
    sender.handle_frame(B, accept, NOW).expect("it is over");
    assert_eq!(outputs(&mut sender), []);
}

#[test]
fn k12_after_accept_any_channel_may_take_it() {
    let mut sender = pack_offered(2 * BLOCK);
    offers(&mut sender, A);
    send(&mut sender, A);
    let frame = accept(BLOCK as u32, &[]);
    sender.handle_frame(B, frame, NOW).expect("an answer");
    assert!(!sender.is_ahead());
    assert_eq!(send(&mut sender, B).range, range(BLOCK, 2 * BLOCK));
    let ends = outputs(&mut sender);
    assert!(
        matches!(
            ends[..],
            [
                SenderOutput::Accepted { .. },
                SenderOutput::Transmit(Frame::Eofr(_))
            ]
        ),
        "{ends:?}"
    );
}

#[test]
fn k12_a_pack_whose_channel_is_lost_is_offered_again_and_waits() {
    let mut sender = pack_offered(2 * BLOCK);
    offers(&mut sender, A);
    send(&mut sender, A);
    ack(&mut sender, A, 1).expect("one was sent");
    // Nothing of it was on this one.
    sender.channel_down(B);
    assert_eq!(outputs(&mut sender), []);
    sender.channel_up(B, NOW);
    sender.channel_down(A);
    assert!(matches!(frames(&mut sender)[..], [Frame::Xftsmu(_)]));
    assert_eq!(sender.next_extent(B), None);
    let frame = accept(BLOCK as u32, &[]);
    sender.handle_frame(B, frame, NOW).expect("an answer");
    let again = send(&mut sender, B);
    assert_eq!((again.range, again.is_resend), (range(0, BLOCK), true));
    assert_eq!(send(&mut sender, B).range, range(BLOCK, 2 * BLOCK));
    assert!(sender.progress(FILE) <= 2 * BLOCK);
    let published = published_zeros(2 * BLOCK);
    sender.handle_frame(B, published, NOW).expect("the end");
    assert!(sender.is_idle());
}

#[test]
fn k12_a_pack_that_was_offered_again_may_be_published_already() {
    for accepts in [false, true] {
        let mut sender = pack_offered(BLOCK);
        offers(&mut sender, A);
        send(&mut sender, A);
        sender.channel_down(A);
        // What was asked for again goes again in any case.
        let repeat = Frame::Repeat(Repeat {
            file: FILE,
            range: range(0, BLOCK),
        });
        sender.handle_frame(B, repeat, NOW).expect("it was sent");
        if accepts {
            let frame = accept(BLOCK as u32, &[]);
            sender.handle_frame(B, frame, NOW).expect("an answer");
        }
        let published = published_zeros(BLOCK);
        sender.handle_frame(B, published, NOW).expect("the end");
        assert!(sender.is_idle());
        // One that wasn't sent to its end can't be.
        let mut sender = pack_offered(2 * BLOCK);
        offers(&mut sender, A);
        send(&mut sender, A);
        sender.channel_down(A);
        let refused = sender.handle_frame(B, published_zeros(2 * BLOCK), NOW);
        assert_eq!(refused.unwrap_err().code, Code::ProtocolViolation);
    }
}

#[test]
fn k12_the_blocks_of_a_pack_are_those_of_the_session() {
    for lost in [false, true] {
        let mut sender = pack_offered(2 * BLOCK);
        offers(&mut sender, A);
        if lost {
            send(&mut sender, A);
            sender.channel_down(A);
        }
        let smaller = accept(BLOCK as u32 / 2, &[]);
        let refused = sender.handle_frame(B, smaller, NOW);
        assert_eq!(refused.unwrap_err().code, Code::ProtocolViolation);
    }
    // A channel that is gone takes nothing.
    let mut sender = pack_offered(BLOCK);
    sender.channel_down(A);
    assert_eq!(sender.next_pack(A), None);
    assert!(!sender.is_ahead());
}

#[test]
fn k12_packs_and_files_go_in_the_order_of_their_numbers() {
    let mut sender = accepted(Some(BLOCK));
    let pack = |number| Offer {
        tag: SourceTag::default(),
        resume: Resume::Never,
        pack: true,
        ..offer(number, Some(5))
    };
    sender.offer(pack(2), true);
    sender.offer(offer(3, None), true);
    outputs(&mut sender);
    let accept = Frame::Accept(Accept {
        file: FileId(3),
        path: Vec::new(),
        block_size: BLOCK as u32,
        durable: Vec::new(),
    });
    sender.handle_frame(A, accept, NOW).expect("an answer");
    assert_eq!(send(&mut sender, A).file, FileId(1));
    // A source that may go on for ever doesn't keep it waiting.
    assert_eq!(sender.next_extent(B), None);
    offers(&mut sender, B);
    assert_eq!(send(&mut sender, B).file, FileId(2));
    assert_eq!(send(&mut sender, A).file, FileId(3));
}
