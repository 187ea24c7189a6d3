//! What a receiver takes, refuses and answers, rule by rule. The numbers are those of the
//! specification.

use xdfs_proto::digest::{DigestKind, DigestValue, Fragment};
use xdfs_proto::frame::{
    Ack, BlockHeader, Cancel, Eofr, Exception, Hole, Offer, Repeat, Request, Resume, Scope,
    TimeAccount,
};
use xdfs_proto::limits::HOLE_BYTES_MAX;
use xdfs_proto::pack::Failures;
use xdfs_proto::receiver::{Disposition, FileState, Receiver, ReceiverOutput};
use xdfs_proto::{
    ByteRange, ChannelIndex, Code, Fault, FileId, Frame, Limits, NumberUse, SourceTag,
};

use crate::store::hash;

const BLOCK: u64 = 1024;
const KIND: DigestKind = DigestKind::Crc64Nvme;
const A: ChannelIndex = ChannelIndex(0);
const B: ChannelIndex = ChannelIndex(1);

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

fn header(file: u32, offset: u64, length: u64) -> BlockHeader {
    BlockHeader {
        file: FileId(file),
        check: 0,
        clear: false,
        offset,
        length: length as u32,
    }
}

/// What the machine says, whose caller closes the sink of a file that fails at once.
fn outputs(receiver: &mut Receiver) -> Vec<ReceiverOutput> {
    let mut said = Vec::new();
    while let Some(output) = receiver.poll_output() {
        if let ReceiverOutput::Failed { file, .. } = output {
            receiver.closed(file);
        }
        said.push(output);
    }
    said
}

fn frames(receiver: &mut Receiver) -> Vec<Frame> {
    outputs(receiver)
        .into_iter()
        .filter_map(|o| match o {
            ReceiverOutput::Transmit(frame) | ReceiverOutput::TransmitOn(_, frame) => Some(frame),
            _ => None,
        })
        .collect()
}

fn fresh() -> Receiver {
    let mut receiver = Receiver::new(Limits::default());
    receiver.channel_up(A);
    receiver.channel_up(B);
    receiver
}

/// A machine that has accepted file 1, and has nothing to say.
fn accepted(length: Option<u64>) -> Receiver {
    let mut receiver = fresh();
    receiver
        .handle_frame(A, Frame::Xftsmu(offer(1, length)))
        .expect("an offer");
    receiver
        .opened(FileId(1), Vec::new(), BLOCK as u32, Vec::new())
        .expect("an empty journal");
    outputs(&mut receiver);
    receiver
}

/// A whole block of zeros arrives.
fn take(receiver: &mut Receiver, on: ChannelIndex, offset: u64, length: u64) -> bool {
    let header = header(1, offset, length);
    let disposition = receiver.begin_block(on, &header).expect("a sound block");
    let fragment = hash(KIND, offset, &vec![0; length as usize]).1;
    let fragment = (disposition == Disposition::Take(KIND)).then_some(fragment);
    receiver.end_block(on, &header, fragment, false)
}

fn take_wrong(receiver: &mut Receiver, on: ChannelIndex, offset: u64, length: u64) {
    let header = header(1, offset, length);
    let disposition = receiver.begin_block(on, &header).expect("a sound block");
    assert_eq!(disposition, Disposition::Take(KIND));
    assert!(!receiver.end_block(on, &header, None, true));
}

fn zeros(length: u64) -> DigestValue {
    let bytes = vec![0; length as usize];
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes);
    DigestValue::Crc64Nvme(crc)
}

fn eofr(length: u64, digest: DigestValue) -> Frame {
    Frame::Eofr(Eofr {
        file: FileId(1),
        length,
        digest,
        time: TimeAccount::default(),
    })
}

fn hole(start: u64, end: u64) -> Frame {
    Frame::Hole(Hole {
        file: FileId(1),
        range: range(start, end),
    })
}

#[track_caller]
fn violates<T: std::fmt::Debug>(result: Result<T, Fault>) {
    let fault = result.expect_err("a violation");
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn x1_a_number_is_not_offered_twice() {
    let mut receiver = accepted(Some(BLOCK));
    let mut other = offer(1, Some(BLOCK));
    other.path = b"elsewhere".to_vec();
    violates(receiver.handle_frame(A, Frame::Xftsmu(other.clone())));
    receiver.fail(FileId(1), Fault::new(Code::NoSpace, "write", "it is full"));
    violates(receiver.handle_frame(A, Frame::Xftsmu(other)));
    violates(receiver.handle_frame(A, Frame::Xftsmu(offer(0, Some(1)))));
}

/// A number is of one file, in whichever direction it moves.
#[test]
fn x1_a_number_of_the_other_direction_is_known_or_forgotten() {
    let file = FileId(1);
    let mut receiver = accepted(Some(0));
    assert_eq!(receiver.number_use(file), NumberUse::Known);
    assert_eq!(receiver.number_use(FileId(2)), NumberUse::New);
    violates(receiver.number_use(file).answer(file));
    receiver
        .handle_frame(A, eofr(0, zeros(0)))
        .expect("the end");
    receiver.published(file, TimeAccount::default(), Failures::default());
    assert_eq!(receiver.number_use(file), NumberUse::Known);
    let last = Frame::Xftsmu(offer(u32::MAX, Some(1)));
    receiver.handle_frame(A, last).expect("an offer");
    assert_eq!(receiver.number_use(FileId(4)), NumberUse::Forgotten);
    receiver.fail(FileId(u32::MAX), Fault::new(Code::NoSpace, "write", "full"));
    assert_eq!(receiver.number_use(FileId(u32::MAX)), NumberUse::Known);
}

#[test]
fn s12_offers_may_overtake_each_other() {
    let mut receiver = fresh();
    for number in [3, 1, 2] {
        let offer = offer(number, Some(1));
        receiver
            .handle_frame(A, Frame::Xftsmu(offer.clone()))
            .expect("channels have no order");
        assert_eq!(outputs(&mut receiver), [ReceiverOutput::Open(offer)]);
    }
}

#[test]
fn s18_the_same_offer_gets_the_same_answer() {
    let mut receiver = accepted(Some(BLOCK));
    let again = Frame::Xftsmu(offer(1, Some(BLOCK)));
    receiver.handle_frame(B, again.clone()).expect("the same");
    assert!(matches!(frames(&mut receiver)[..], [Frame::Accept(_)]));
    receiver.fail(FileId(1), Fault::new(Code::NoSpace, "write", "it is full"));
    let said = frames(&mut receiver);
    assert!(matches!(said[..], [Frame::Exception(_)]));
    receiver.handle_frame(B, again).expect("the same");
    assert_eq!(frames(&mut receiver), said);
}

#[test]
fn s18_an_offer_that_comes_after_publication_changes_nothing() {
    let mut receiver = accepted(Some(0));
    let end = eofr(0, zeros(0));
    receiver.handle_frame(A, end.clone()).expect("the end");
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    outputs(&mut receiver);
    receiver
        .handle_frame(B, Frame::Xftsmu(offer(1, Some(0))))
        .expect("it was slow");
    assert_eq!(outputs(&mut receiver), []);
    receiver.handle_frame(B, end).expect("it came again");
    assert!(matches!(frames(&mut receiver)[..], [Frame::Published(_)]));
}

#[test]
fn k12_a_pack_that_is_offered_again_may_be_published_already() {
    let mut receiver = fresh();
    let pack = Frame::Xftsmu(Offer {
        tag: SourceTag::default(),
        resume: Resume::Never,
        pack: true,
        ..offer(1, Some(BLOCK))
    });
    receiver.handle_frame(A, pack.clone()).expect("an offer");
    receiver
        .opened(FileId(1), Vec::new(), BLOCK as u32, Vec::new())
        .expect("a pack is in memory");
    // What comes of it says nothing about ACCEPT, which may be lost.
    let header = header(1, 0, BLOCK);
    receiver.begin_block(A, &header).expect("a block");
    let fragment = hash(KIND, 0, &vec![0; BLOCK as usize]).1;
    receiver.end_block(A, &header, Some(fragment), false);
    outputs(&mut receiver);
    receiver.channel_down(B);
    assert!(matches!(frames(&mut receiver)[..], [Frame::Accept(_)]));
    receiver.channel_up(B);
    let end = eofr(BLOCK, zeros(BLOCK));
    receiver.handle_frame(A, end).expect("the end");
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    outputs(&mut receiver);
    receiver.handle_frame(B, pack).expect("it came again");
    let answers = frames(&mut receiver);
    assert!(matches!(answers[..], [Frame::Published(_)]), "{answers:?}");
}

#[test]
fn k12_what_follows_an_offer_that_is_refused_is_discarded() {
    let mut receiver = fresh();
    let pack = Offer {
        tag: SourceTag::default(),
        resume: Resume::Never,
        pack: true,
        ..offer(1, Some(BLOCK))
    };
    let fault = Fault::new(Code::ShuttingDown, "offer the file", "the server ends");
    receiver.refuse(pack.clone(), &fault);
    let refusals = |receiver: &mut Receiver| {
        let frames = frames(receiver);
        assert!(
            matches!(
                &frames[..],
                [Frame::Exception(Exception { fault, .. })] if fault.code == Code::ShuttingDown
            ),
            "{frames:?}"
        );
    };
    refusals(&mut receiver);
    let header = header(1, 0, BLOCK);
    let disposition = receiver.begin_block(A, &header).expect("no violation");
    assert_eq!(disposition, Disposition::Discard);
    receiver.end_block(A, &header, None, false);
    let end = eofr(BLOCK, zeros(BLOCK));
    receiver.handle_frame(A, end).expect("no violation");
    refusals(&mut receiver);
    receiver
        .handle_frame(B, Frame::Xftsmu(pack))
        .expect("it came again");
    refusals(&mut receiver);
    assert!(receiver.is_idle());
}

#[test]
fn s18_a_dry_run_is_answered_again() {
    let mut receiver = fresh();
    let mut dry = offer(1, Some(5));
    dry.dry_run = true;
    for _ in 0..2 {
        receiver
            .handle_frame(A, Frame::Xftsmu(dry.clone()))
            .expect("an offer");
        receiver
            .opened(FileId(1), Vec::new(), 1024, Vec::new())
            .expect("an empty journal");
        assert!(matches!(frames(&mut receiver)[..], [Frame::Accept(_)]));
        assert!(receiver.is_idle());
    }
}

#[test]
fn s18_a_lost_channel_repeats_what_may_be_lost() {
    let mut receiver = accepted(Some(2 * BLOCK));
    receiver.channel_down(A);
    assert!(matches!(frames(&mut receiver)[..], [Frame::Accept(_)]));
    // A data frame shows that ACCEPT has arrived.
    take_wrong(&mut receiver, B, 0, BLOCK);
    let repeat = Frame::Repeat(Repeat {
        file: FileId(1),
        range: range(0, BLOCK),
    });
    assert_eq!(frames(&mut receiver), std::slice::from_ref(&repeat));
    receiver.channel_up(ChannelIndex(2));
    receiver.channel_down(ChannelIndex(2));
    assert_eq!(frames(&mut receiver), [repeat]);
    take(&mut receiver, B, 0, BLOCK);
    take(&mut receiver, B, BLOCK, BLOCK);
    receiver
        .handle_frame(B, eofr(2 * BLOCK, zeros(2 * BLOCK)))
        .expect("the end");
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    let word = frames(&mut receiver);
    assert!(matches!(word[..], [Frame::Published(_)]));
    receiver.channel_down(B);
    assert_eq!(frames(&mut receiver), word);
}

#[test]
fn x3_an_offer_names_the_digest_that_was_asked_for() {
    let mut receiver = fresh();
    receiver.request(Request {
        file: FileId(1),
        path: b"source".to_vec(),
        offset: 0,
        length: None,
        digest: DigestKind::Blake3,
        pack: None,
    });
    violates(receiver.handle_frame(A, Frame::Offer(offer(1, Some(1)))));
    violates(receiver.handle_frame(A, Frame::Offer(offer(2, Some(1)))));
}

#[test]
fn x55_what_becomes_of_the_target_is_decided_by_who_asked() {
    let mut receiver = fresh();
    receiver.request(Request {
        file: FileId(1),
        path: b"source".to_vec(),
        offset: 0,
        length: None,
        digest: KIND,
        pack: None,
    });
    let said = Offer {
        overwrite: true,
        resume: Resume::Verify,
        dry_run: true,
        ..offer(1, Some(1024))
    };
    receiver
        .handle_frame(A, Frame::Offer(said.clone()))
        .expect("flags without a meaning");
    let open = ReceiverOutput::Open(Offer {
        overwrite: false,
        resume: Resume::Never,
        dry_run: false,
        ..said.clone()
    });
    assert!(outputs(&mut receiver).contains(&open));
    receiver
        .opened(FileId(1), Vec::new(), BLOCK as u32, Vec::new())
        .expect("an empty journal");
    // The same offer with other flags is the same.
    for again in [said, offer(1, Some(1024))] {
        receiver
            .handle_frame(B, Frame::Offer(again))
            .expect("the offer that came before");
    }
    outputs(&mut receiver);
    assert!(take(&mut receiver, A, 0, 1024), "it isn't forgotten");
    receiver
        .handle_frame(A, eofr(1024, zeros(1024)))
        .expect("the end");
    assert!(
        outputs(&mut receiver)
            .iter()
            .any(|o| matches!(o, ReceiverOutput::Publish { .. }))
    );
}

#[test]
fn x4_nothing_comes_before_accept() {
    let mut receiver = fresh();
    violates(receiver.begin_block(A, &header(1, 0, 1)));
    violates(receiver.handle_frame(A, eofr(0, zeros(0))));
    receiver
        .handle_frame(A, Frame::Xftsmu(offer(1, Some(BLOCK))))
        .expect("an offer");
    violates(receiver.begin_block(A, &header(1, 0, BLOCK)));
    violates(receiver.handle_frame(A, hole(0, BLOCK)));
    violates(receiver.handle_frame(A, eofr(BLOCK, zeros(BLOCK))));
}

#[test]
fn x7_one_file_too_many_is_refused_and_the_session_goes_on() {
    let limits = Limits {
        open_files_max: 2,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(limits);
    receiver.channel_up(A);
    for number in 1..=3 {
        receiver
            .handle_frame(A, Frame::Xftsmu(offer(number, Some(1))))
            .expect("an offer");
    }
    let answers = frames(&mut receiver);
    let [Frame::Exception(Exception { scope, fault })] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(*scope, Scope::File(FileId(3)));
    assert_eq!(fault.code, Code::LimitExceeded);
    assert!(receiver.has_file(FileId(2)) && !receiver.has_file(FileId(3)));
}

#[test]
fn x8_blocks_keep_to_the_grid() {
    for (offset, length) in [(1, 1), (0, 1000), (512, BLOCK), (0, 2 * BLOCK)] {
        let mut receiver = accepted(Some(4 * BLOCK));
        violates(receiver.begin_block(A, &header(1, offset, length)));
    }
    for (start, end) in [(0, 1000), (512, BLOCK)] {
        let mut receiver = accepted(Some(4 * BLOCK));
        violates(receiver.handle_frame(A, hole(start, end)));
    }
}

#[test]
fn x8_only_the_last_block_of_unknown_length_is_short() {
    let mut receiver = accepted(None);
    assert!(take(&mut receiver, A, BLOCK, 100));
    violates(receiver.begin_block(A, &header(1, 2 * BLOCK, BLOCK)));
    violates(receiver.begin_block(A, &header(1, 0, 7)));
    violates(receiver.handle_frame(A, eofr(5 * BLOCK, zeros(5 * BLOCK))));
    let mut receiver = accepted(None);
    assert!(take(&mut receiver, A, 3 * BLOCK, BLOCK));
    violates(receiver.begin_block(A, &header(1, 0, 7)));
}

#[test]
fn x10_what_is_held_is_discarded_and_counts() {
    let mut receiver = accepted(Some(3 * BLOCK));
    assert!(take(&mut receiver, A, 0, BLOCK));
    assert!(!take(&mut receiver, A, 0, BLOCK));
    receiver.handle_frame(A, hole(0, BLOCK)).expect("held");
    receiver.fail(
        FileId(1),
        Fault::new(Code::Cancelled, "receive", "the user said so"),
    );
    assert!(!take(&mut receiver, A, BLOCK, BLOCK));
    frames(&mut receiver);
    receiver.flush_acks();
    assert_eq!(frames(&mut receiver), [Frame::Ack(Ack { data_frames: 4 })]);
}

#[test]
fn x10_of_a_hole_the_rest_is_taken() {
    let mut receiver = accepted(Some(4 * BLOCK));
    assert!(take(&mut receiver, A, BLOCK, BLOCK));
    receiver.handle_frame(B, hole(0, 4 * BLOCK)).expect("late");
    let hole = |start, end| ReceiverOutput::Hole {
        file: FileId(1),
        range: range(start, end),
        fragments: vec![hash(KIND, start, &vec![0; (end - start) as usize]).1],
    };
    assert_eq!(
        outputs(&mut receiver),
        [hole(0, BLOCK), hole(2 * BLOCK, 4 * BLOCK)]
    );
}

#[test]
fn x11_nothing_lies_past_the_end() {
    let mut receiver = accepted(Some(BLOCK + 1));
    violates(receiver.begin_block(A, &header(1, BLOCK, 2)));
    violates(receiver.begin_block(A, &header(1, 2 * BLOCK, BLOCK)));
    violates(receiver.handle_frame(A, hole(0, 2 * BLOCK)));
    violates(receiver.begin_block(A, &header(1, u64::MAX, BLOCK)));
}

#[test]
fn x11_nothing_overlaps_in_part() {
    // Two halves of a cell can only come where the length isn't known.
    let mut receiver = accepted(None);
    assert!(take(&mut receiver, A, 0, 500));
    violates(receiver.begin_block(A, &header(1, 0, BLOCK)));
    violates(receiver.begin_block(A, &header(1, 0, 700)));
}

#[test]
fn x11_an_unknown_file_has_no_blocks() {
    let mut receiver = accepted(Some(BLOCK));
    violates(receiver.begin_block(A, &header(2, 0, BLOCK)));
    violates(receiver.begin_block(A, &header(0, 0, BLOCK)));
    violates(receiver.begin_block(A, &header(u32::MAX, 0, BLOCK)));
}

#[test]
fn x12_separate_ranges_are_bounded() {
    let limits = Limits {
        fragments_max: 2,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(limits);
    receiver.channel_up(A);
    receiver
        .handle_frame(A, Frame::Xftsmu(offer(1, Some(99 * BLOCK))))
        .expect("an offer");
    receiver
        .opened(FileId(1), Vec::new(), BLOCK as u32, Vec::new())
        .expect("an empty journal");
    assert!(take(&mut receiver, A, 0, BLOCK));
    assert!(take(&mut receiver, A, 2 * BLOCK, BLOCK));
    let fault = receiver
        .begin_block(A, &header(1, 4 * BLOCK, BLOCK))
        .expect_err("too many");
    assert_eq!(fault.code, Code::LimitExceeded);
}

/// Payload is written before its check value is known, so that a second copy could damage the
/// first where it stands already.
#[test]
fn x13_a_range_is_taken_by_one_channel_at_a_time() {
    let mut receiver = accepted(Some(BLOCK));
    let block = header(1, 0, BLOCK);
    let begin = |r: &mut Receiver, on| r.begin_block(on, &block).expect("a block");
    assert_eq!(begin(&mut receiver, A), Disposition::Take(KIND));
    assert_eq!(begin(&mut receiver, B), Disposition::Discard);
    assert!(!receiver.end_block(B, &block, None, true));
    assert_eq!(outputs(&mut receiver), []);
    // The first copy is lost with its channel, and the second was acknowledged: ask again.
    receiver.channel_down(A);
    let repeat = Frame::Repeat(Repeat {
        file: FileId(1),
        range: range(0, BLOCK),
    });
    assert_eq!(frames(&mut receiver), [repeat]);
    assert!(take(&mut receiver, B, 0, BLOCK));
}

#[test]
fn x13_a_hole_that_meets_an_arriving_block_is_asked_for_again() {
    let mut receiver = accepted(Some(3 * BLOCK));
    let block = header(1, BLOCK, BLOCK);
    receiver.begin_block(A, &block).expect("a block");
    receiver.handle_frame(B, hole(0, 3 * BLOCK)).expect("zeros");
    assert_eq!(outputs(&mut receiver), []);
    let fragment = hash(KIND, BLOCK, &[0; BLOCK as usize]).1;
    assert!(receiver.end_block(A, &block, Some(fragment), false));
    let repeat = |start, end| {
        Frame::Repeat(Repeat {
            file: FileId(1),
            range: range(start, end),
        })
    };
    assert_eq!(
        frames(&mut receiver),
        [repeat(0, BLOCK), repeat(2 * BLOCK, 3 * BLOCK)]
    );
}

#[test]
fn x15_a_hole_is_neither_empty_nor_too_long() {
    let mut receiver = accepted(Some(4 * HOLE_BYTES_MAX));
    violates(receiver.handle_frame(A, hole(BLOCK, BLOCK)));
    violates(receiver.handle_frame(A, hole(0, HOLE_BYTES_MAX + BLOCK)));
    receiver
        .handle_frame(A, hole(0, HOLE_BYTES_MAX))
        .expect("the longest");
}

#[test]
fn x18_an_ack_comes_at_least_every_64_data_frames() {
    let mut receiver = accepted(Some(1000 * BLOCK));
    for i in 0..63 {
        take(&mut receiver, A, i * BLOCK, BLOCK);
    }
    assert_eq!(frames(&mut receiver), []);
    take(&mut receiver, A, 63 * BLOCK, BLOCK);
    assert_eq!(frames(&mut receiver), [Frame::Ack(Ack { data_frames: 64 })]);
}

#[test]
fn x19_a_wrong_check_value_is_asked_for_again_and_not_held() {
    let mut receiver = accepted(Some(BLOCK));
    take_wrong(&mut receiver, A, 0, BLOCK);
    let repeat = ReceiverOutput::TransmitOn(
        A,
        Frame::Repeat(Repeat {
            file: FileId(1),
            range: range(0, BLOCK),
        }),
    );
    assert_eq!(outputs(&mut receiver), [repeat]);
    assert_eq!(receiver.progress(FileId(1)).0, 0);
    assert_eq!(receiver.repeated_bytes(FileId(1)), BLOCK);
}

#[test]
fn x20_the_ninth_wrong_check_value_fails_the_file() {
    let mut receiver = accepted(Some(BLOCK));
    for _ in 0..8 {
        take_wrong(&mut receiver, A, 0, BLOCK);
    }
    outputs(&mut receiver);
    take_wrong(&mut receiver, A, 0, BLOCK);
    let said = outputs(&mut receiver);
    let [
        ReceiverOutput::Failed { fault, .. },
        ReceiverOutput::Transmit(Frame::Exception(_)),
    ] = &said[..]
    else {
        panic!("{said:?}");
    };
    assert_eq!(fault.code, Code::IntegrityMismatch);
}

#[test]
fn x25_eofr_agrees_with_the_offer_and_with_what_came() {
    let mut receiver = accepted(Some(BLOCK));
    violates(receiver.handle_frame(A, eofr(BLOCK + 1, zeros(BLOCK))));
    // Shorter than what is held, or being read.
    let mut receiver = accepted(None);
    take(&mut receiver, A, BLOCK, BLOCK);
    violates(receiver.handle_frame(A, eofr(BLOCK, zeros(BLOCK))));
    let mut receiver = accepted(None);
    receiver
        .begin_block(A, &header(1, BLOCK, BLOCK))
        .expect("a block");
    violates(receiver.handle_frame(B, eofr(BLOCK, zeros(BLOCK))));
    // Two that differ.
    let mut receiver = accepted(None);
    receiver
        .handle_frame(A, eofr(BLOCK, zeros(BLOCK)))
        .expect("the end");
    receiver
        .handle_frame(A, eofr(BLOCK, zeros(BLOCK)))
        .expect("the same");
    violates(receiver.handle_frame(A, eofr(BLOCK, zeros(1))));
    violates(receiver.handle_frame(A, eofr(2 * BLOCK, zeros(BLOCK))));
}

#[test]
fn x57_eofr_has_a_digest_of_the_kind_that_was_offered() {
    let mut receiver = accepted(Some(BLOCK));
    take(&mut receiver, A, 0, BLOCK);
    violates(receiver.handle_frame(A, eofr(BLOCK, DigestValue::None)));
    let mut receiver = accepted(Some(BLOCK));
    take(&mut receiver, A, 0, BLOCK);
    violates(receiver.handle_frame(A, eofr(BLOCK, DigestValue::Blake3([0; 32]))));
}

#[test]
fn x26_eofr_may_come_before_the_last_block() {
    let mut receiver = accepted(Some(BLOCK));
    receiver
        .handle_frame(A, eofr(BLOCK, zeros(BLOCK)))
        .expect("the end");
    assert_eq!(outputs(&mut receiver), []);
    take(&mut receiver, B, 0, BLOCK);
    let publish = ReceiverOutput::Publish {
        file: FileId(1),
        length: BLOCK,
    };
    assert_eq!(outputs(&mut receiver), [publish]);
}

#[test]
fn x27_a_wrong_digest_discards_and_publishes_nothing() {
    let mut receiver = accepted(Some(BLOCK));
    take(&mut receiver, A, 0, BLOCK);
    receiver
        .handle_frame(A, eofr(BLOCK, zeros(1)))
        .expect("a digest");
    let said = outputs(&mut receiver);
    let [
        ReceiverOutput::Discard { file: FileId(1) },
        ReceiverOutput::Failed { fault, .. },
        ReceiverOutput::Transmit(Frame::Exception(_)),
    ] = &said[..]
    else {
        panic!("{said:?}");
    };
    assert_eq!(fault.code, Code::IntegrityMismatch);
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    assert_eq!(outputs(&mut receiver), []);
}

#[test]
fn x28_published_is_said_once_the_store_has_done_it() {
    let mut receiver = accepted(Some(0));
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    assert_eq!(outputs(&mut receiver), []);
    receiver
        .handle_frame(A, eofr(0, zeros(0)))
        .expect("the end");
    assert!(matches!(
        outputs(&mut receiver)[..],
        [ReceiverOutput::Publish { .. }]
    ));
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    let said = outputs(&mut receiver);
    assert!(matches!(
        said[..],
        [
            ReceiverOutput::Transmit(Frame::Published(_)),
            ReceiverOutput::Finished { .. }
        ]
    ));
}

#[test]
fn x32_a_journal_that_contradicts_itself_is_refused() {
    let fragment = |start: u64, end: u64| -> Fragment {
        hash(KIND, start, &vec![0; (end - start) as usize]).1
    };
    let journals = [
        vec![fragment(0, BLOCK), fragment(0, BLOCK)],
        vec![fragment(0, 8 * BLOCK)],
        vec![fragment(0, 100)],
    ];
    for journal in journals {
        let mut receiver = fresh();
        receiver
            .handle_frame(A, Frame::Xftsmu(offer(1, Some(4 * BLOCK))))
            .expect("an offer");
        let fault = receiver
            .opened(FileId(1), Vec::new(), BLOCK as u32, journal)
            .expect_err("no journal of this file");
        assert_eq!(fault.code, Code::Internal);
    }
}

#[test]
fn f15_what_accept_has_no_room_for_may_be_sent_again() {
    let limits = Limits {
        resume_ranges_max: 1,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(limits);
    receiver.channel_up(A);
    receiver
        .handle_frame(A, Frame::Xftsmu(offer(1, Some(9 * BLOCK))))
        .expect("an offer");
    let journal = [(0, 1), (2, 4), (6, 7)].map(|(start, end): (u64, u64)| {
        let bytes = vec![0; ((end - start) * BLOCK) as usize];
        hash(KIND, start * BLOCK, &bytes).1
    });
    receiver
        .opened(FileId(1), Vec::new(), BLOCK as u32, journal.to_vec())
        .expect("a journal");
    let said = frames(&mut receiver);
    let [Frame::Accept(accept)] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(accept.durable, [journal[1]]);
    assert!(!take(&mut receiver, A, 0, BLOCK));
    // The sender can't know that the hole is held in part.
    receiver
        .handle_frame(A, hole(4 * BLOCK, 9 * BLOCK))
        .expect("zeros");
}

#[test]
fn x35_what_failed_is_told_and_its_blocks_are_discarded() {
    let mut receiver = accepted(Some(BLOCK));
    receiver.fail(FileId(1), Fault::new(Code::NoSpace, "write", "it is full"));
    assert!(matches!(
        frames(&mut receiver)[..],
        [Frame::Exception(Exception {
            scope: Scope::File(FileId(1)),
            ..
        })]
    ));
    assert!(!take(&mut receiver, A, 0, BLOCK));
    receiver
        .handle_frame(A, Frame::Cancel(Cancel { file: FileId(1) }))
        .expect("it is over");
}

/// The sender may offer the target anew when it hears of the end: the target has to be free then.
#[test]
fn x35_the_last_answer_waits_until_the_target_is_free() {
    let cancel = Frame::Cancel(Cancel { file: FileId(1) });
    let full = || Fault::new(Code::NoSpace, "write", "it is full");
    let ends: [&dyn Fn(&mut Receiver); 3] = [
        &|receiver| {
            let taken = receiver.handle_frame(A, cancel.clone());
            taken.expect("a cancel");
        },
        &|receiver| receiver.fail(FileId(1), full()),
        &|receiver| {
            take(receiver, A, 0, BLOCK);
            let taken = receiver.handle_frame(A, eofr(BLOCK, zeros(1)));
            taken.expect("a digest");
        },
    ];
    for end in ends {
        let mut receiver = accepted(Some(BLOCK));
        end(&mut receiver);
        let quiet = |receiver: &mut Receiver| {
            let said = std::iter::from_fn(|| receiver.poll_output());
            !said
                .into_iter()
                .any(|o| matches!(o, ReceiverOutput::Transmit(_)))
        };
        // Nor is it told to one that asks again, or when a channel is lost.
        assert!(quiet(&mut receiver) && !receiver.is_idle());
        assert_eq!(receiver.state(FileId(1)), Some(FileState::Closing));
        let again = Frame::Xftsmu(offer(1, Some(BLOCK)));
        receiver.handle_frame(B, again).expect("the same");
        let late = eofr(BLOCK, zeros(BLOCK));
        receiver.handle_frame(B, late).expect("it has ended");
        receiver.channel_down(A);
        assert!(quiet(&mut receiver));
        receiver.closed(FileId(1));
        let said = frames(&mut receiver);
        let is_last = |f: &Frame| matches!(f, Frame::Cancel(_) | Frame::Exception(_));
        assert!(said.len() == 1 && is_last(&said[0]), "{said:?}");
        assert!(receiver.is_idle());
        receiver.closed(FileId(1));
        assert_eq!(frames(&mut receiver), []);
    }
}

/// Whatever a peer does, the sinks that are open and those that are being closed are as many as
/// files may be open.
#[test]
fn x7_sinks_that_are_being_closed_count() {
    let mut receiver = fresh();
    let files = Limits::default().open_files_max as u32;
    for file in 1..=files + 1 {
        let offered = receiver.handle_frame(A, Frame::Xftsmu(offer(file, Some(BLOCK))));
        offered.expect("an offer");
        let cancel = Frame::Cancel(Cancel { file: FileId(file) });
        receiver.handle_frame(A, cancel).expect("a cancel");
    }
    let said: Vec<_> = std::iter::from_fn(|| receiver.poll_output()).collect();
    let is_refusal = |o: &&ReceiverOutput| {
        matches!(o, ReceiverOutput::Transmit(Frame::Exception(e))
            if e.fault.code == Code::LimitExceeded && e.scope == Scope::File(FileId(files + 1)))
    };
    assert_eq!(said.iter().filter(is_refusal).count(), 1, "{said:?}");
}

/// Where the length isn't known, every range that is listed ends on the grid.
#[test]
fn x59_a_ragged_end_is_held_and_not_listed() {
    let ragged = hash(KIND, 2 * BLOCK, &[0; 100]).1;
    let whole = hash(KIND, 0, &[0; BLOCK as usize]).1;
    let opened = |durable: Vec<Fragment>| {
        let mut receiver = fresh();
        let offered = receiver.handle_frame(A, Frame::Xftsmu(offer(1, None)));
        offered.expect("an offer");
        let taken = receiver.opened(FileId(1), Vec::new(), BLOCK as u32, durable);
        taken.map(|()| (frames(&mut receiver), receiver))
    };
    let (said, mut receiver) = opened(vec![whole, ragged]).expect("a sound journal");
    let [Frame::Accept(accept)] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(accept.durable, [whole]);
    // The sender sends it again, and nothing behind it.
    violates(receiver.clone().begin_block(A, &header(1, 3 * BLOCK, 1)));
    assert!(!take(&mut receiver, A, 2 * BLOCK, 100));
    assert!(take(&mut receiver, A, BLOCK, BLOCK));
    let length = 2 * BLOCK + 100;
    let end = eofr(length, zeros(length));
    receiver.handle_frame(A, end).expect("the end");
    let said = outputs(&mut receiver);
    assert!(
        matches!(said[..], [ReceiverOutput::Publish { .. }]),
        "{said:?}"
    );
    // A journal that contradicts itself.
    let beyond = hash(KIND, 4 * BLOCK, &[0; BLOCK as usize]).1;
    for journal in [vec![ragged, beyond], vec![beyond, ragged]] {
        assert_eq!(
            opened(journal).expect_err("it is unsound").code,
            Code::Internal
        );
    }
}

#[test]
fn x51_a_sender_that_cancels_is_answered_once() {
    let mut receiver = accepted(Some(BLOCK));
    let cancel = Frame::Cancel(Cancel { file: FileId(1) });
    receiver.handle_frame(A, cancel.clone()).expect("a cancel");
    let said = outputs(&mut receiver);
    let [
        ReceiverOutput::Failed { fault, .. },
        ReceiverOutput::Transmit(answer),
    ] = &said[..]
    else {
        panic!("{said:?}");
    };
    assert_eq!(*answer, cancel);
    assert_eq!(fault.code, Code::Cancelled);
    // Two sides that answer each other's CANCEL would never end.
    receiver.handle_frame(A, cancel.clone()).expect("a cancel");
    assert_eq!(outputs(&mut receiver), []);
    receiver.channel_down(A);
    assert_eq!(frames(&mut receiver), [cancel]);
}

#[test]
fn x51_a_refused_request_needs_no_answer() {
    let mut receiver = fresh();
    receiver.request(Request {
        file: FileId(1),
        path: b"source".to_vec(),
        offset: 0,
        length: None,
        digest: KIND,
        pack: None,
    });
    outputs(&mut receiver);
    let fault = Fault::new(Code::NotFound, "open", "it isn't there").remote();
    receiver.withdraw(FileId(1), fault);
    assert!(matches!(
        outputs(&mut receiver)[..],
        [ReceiverOutput::Failed { .. }]
    ));
}

/// A machine that publishes file 1, and has nothing to say.
fn publishing() -> Receiver {
    let mut receiver = accepted(Some(BLOCK));
    assert!(take(&mut receiver, A, 0, BLOCK));
    let end = eofr(BLOCK, zeros(BLOCK));
    receiver.handle_frame(A, end).expect("the end");
    let said = outputs(&mut receiver);
    assert!(
        matches!(said[..], [ReceiverOutput::Publish { .. }]),
        "{said:?}"
    );
    receiver
}

#[test]
fn x50_whoever_cancels_what_is_published_is_told_so() {
    let fault = Fault::new(Code::SourceChanged, "read", "it shrank");
    let cancelled = Fault::new(Code::Cancelled, "receive", "stopped by the user");
    let events: [&dyn Fn(&mut Receiver); 3] = [
        &|receiver| {
            let cancel = Frame::Cancel(Cancel { file: FileId(1) });
            receiver.handle_frame(B, cancel).expect("a cancel");
        },
        &|receiver| receiver.withdraw(FileId(1), fault.clone().remote()),
        &|receiver| receiver.cancel(FileId(1), cancelled.clone()),
    ];
    for event in events {
        let mut receiver = publishing();
        event(&mut receiver);
        assert_eq!(outputs(&mut receiver), []);
        receiver.published(FileId(1), TimeAccount::default(), Failures::default());
        assert!(matches!(
            outputs(&mut receiver)[..],
            [
                ReceiverOutput::Transmit(Frame::Published(_)),
                ReceiverOutput::Finished { .. }
            ]
        ));
    }
}

#[test]
fn x50_a_store_that_can_not_publish_fails_the_file() {
    let mut receiver = publishing();
    receiver.fail(
        FileId(1),
        Fault::new(Code::NoSpace, "publish", "it is full"),
    );
    assert!(matches!(
        outputs(&mut receiver)[..],
        [
            ReceiverOutput::Failed { .. },
            ReceiverOutput::Transmit(Frame::Exception(_))
        ]
    ));
    receiver.published(FileId(1), TimeAccount::default(), Failures::default());
    assert_eq!(outputs(&mut receiver), []);
}

/// Files 1 to `n` are refused, one after the other.
fn refuse_all(receiver: &mut Receiver, n: u32) {
    for file in 1..=n {
        let fault = Fault::new(Code::ShuttingDown, "offer the file", "the server ends");
        receiver.refuse(offer(file, Some(BLOCK)), &fault);
    }
    outputs(receiver);
}

fn is_forgotten(said: &[ReceiverOutput]) -> bool {
    matches!(said, [ReceiverOutput::Transmit(Frame::Exception(Exception { fault, .. }))]
        if fault.code == Code::LimitExceeded && fault.cause.contains("no longer known"))
}

#[test]
fn m9_the_word_on_a_file_is_kept_for_the_last_64_and_then_forgotten_aloud() {
    let again = Frame::Xftsmu(offer(1, Some(BLOCK)));
    let end = eofr(BLOCK, zeros(BLOCK));
    for frame in [again, end] {
        let mut receiver = fresh();
        refuse_all(&mut receiver, 64);
        receiver.handle_frame(A, frame.clone()).expect("again");
        assert!(matches!(
            &outputs(&mut receiver)[..],
            [ReceiverOutput::Transmit(Frame::Exception(Exception { fault, .. }))]
                if fault.code == Code::ShuttingDown
        ));
        let fault = Fault::new(Code::ShuttingDown, "offer the file", "the server ends");
        receiver.refuse(offer(65, Some(BLOCK)), &fault);
        outputs(&mut receiver);
        receiver.handle_frame(A, frame).expect("again");
        let said = outputs(&mut receiver);
        assert!(is_forgotten(&said), "{said:?}");
    }
}

#[test]
fn m7_a_number_1024_behind_counts_as_used_and_its_sender_is_told() {
    for (number, opens) in [(1025, true), (1024, false)] {
        let mut receiver = fresh();
        receiver
            .handle_frame(A, Frame::Xftsmu(offer(2048, Some(BLOCK))))
            .expect("an offer");
        outputs(&mut receiver);
        receiver
            .handle_frame(A, Frame::Xftsmu(offer(number, Some(BLOCK))))
            .expect("a slow channel");
        let said = outputs(&mut receiver);
        assert_eq!(
            matches!(said[..], [ReceiverOutput::Open(_)]),
            opens,
            "{said:?}"
        );
        assert_eq!(is_forgotten(&said), !opens, "{said:?}");
    }
}

#[test]
fn frames_of_a_receiver_are_not_for_a_receiver() {
    let mut receiver = accepted(Some(BLOCK));
    violates(receiver.handle_frame(A, Frame::Ack(Ack { data_frames: 0 })));
    violates(receiver.handle_frame(A, Frame::JoinOk));
}

#[test]
fn x13_a_damaged_block_says_nothing_of_the_end() {
    let mut receiver = accepted(None);
    take_wrong(&mut receiver, A, 0, 100);
    assert!(take(&mut receiver, A, BLOCK, BLOCK));
    assert!(take(&mut receiver, A, 0, BLOCK));
}

#[test]
fn x21_a_block_without_memory_is_requested_again_when_there_is_some() {
    let mut receiver = accepted(Some(2 * BLOCK));
    let first = header(1, 0, BLOCK);
    let disposition = receiver.begin_block(A, &first).expect("a sound block");
    assert_eq!(disposition, Disposition::Take(KIND));
    receiver.drop_block(&first);
    assert!(!receiver.end_block(A, &first, None, false));
    assert_eq!(frames(&mut receiver), []);
    receiver.request_dropped(FileId(1));
    let repeat = Frame::Repeat(Repeat {
        file: FileId(1),
        range: range(0, BLOCK),
    });
    assert_eq!(frames(&mut receiver), std::slice::from_ref(&repeat));
    // Once, unless the answer may be lost.
    receiver.request_dropped(FileId(1));
    assert_eq!(frames(&mut receiver), []);
    receiver.channel_down(A);
    assert!(frames(&mut receiver).contains(&repeat));
    assert!(take(&mut receiver, B, 0, BLOCK));
    assert!(take(&mut receiver, B, BLOCK, BLOCK));
    // A file that is gone needs nothing.
    receiver.fail(FileId(1), Fault::new(Code::NoSpace, "write", "it is full"));
    receiver.drop_block(&first);
    receiver.request_dropped(FileId(1));
}
