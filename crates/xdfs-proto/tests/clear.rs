//! Which blocks may travel in the clear: both machines keep to and [K-13].

use xdfs_proto::frame::{BlockHeader, Frame, Offer, Resume};
use xdfs_proto::limits::CLEAR_OFFSET_MIN;
use xdfs_proto::receiver::Receiver;
use xdfs_proto::sender::{Extent, Sender};
use xdfs_proto::{ByteRange, ChannelIndex, Code, DigestKind, FileId, Limits, SourceTag};

const BLOCK: u32 = 256 << 10;
const FILE: FileId = FileId(1);

fn offer(pack: bool) -> Offer {
    Offer {
        file: FILE,
        path: b"target".to_vec(),
        name: Vec::new(),
        length: Some(2 << 20),
        tag: SourceTag::default(),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::Blake3,
        overwrite: false,
        resume: Resume::Never,
        dry_run: false,
        pack,
        sparse: false,
        relaxed: false,
        last: None,
    }
}

fn receiver(pack: bool) -> Receiver {
    let mut receiver = Receiver::new(Limits::default());
    receiver.channel_up(ChannelIndex(0));
    let frame = Frame::Xftsmu(offer(pack));
    receiver
        .handle_frame(ChannelIndex(0), frame)
        .expect("an offer");
    receiver
        .opened(FILE, Vec::new(), BLOCK, Vec::new())
        .expect("nothing is there");
    receiver
}

#[test]
fn a_receiver_takes_no_clear_block_that_should_be_private() {
    for (pack, offset, is_taken) in [
        (false, 0, false),
        (false, CLEAR_OFFSET_MIN - u64::from(BLOCK), false),
        (false, CLEAR_OFFSET_MIN, true),
        (false, 1 << 20, true),
        (true, 0, false),
        (true, CLEAR_OFFSET_MIN, false),
        (true, 1 << 20, false),
    ] {
        for clear in [true, false] {
            let header = BlockHeader {
                file: FILE,
                check: 0,
                clear,
                offset,
                length: BLOCK,
            };
            let result = receiver(pack).begin_block(ChannelIndex(0), &header);
            match result {
                Ok(_) => assert!(!clear || is_taken, "{pack} {offset}"),
                Err(fault) => {
                    assert!(clear && !is_taken, "{pack} {offset} {clear}: {fault}");
                    assert_eq!(fault.code, Code::ProtectionRefused);
                }
            }
        }
    }
}

#[test]
fn a_sender_keeps_packs_and_beginnings_private() {
    for pack in [false, true] {
        let mut sender = Sender::new(Limits::default(), u64::MAX);
        sender.offer(offer(pack), true);
        let extent = |start| Extent {
            file: FILE,
            range: ByteRange {
                start,
                end: start + 1,
            },
            is_resend: false,
        };
        assert!(!sender.may_be_clear(extent(0)));
        assert!(!sender.may_be_clear(extent(CLEAR_OFFSET_MIN - 1)));
        assert_eq!(sender.may_be_clear(extent(CLEAR_OFFSET_MIN)), !pack);
    }
}
