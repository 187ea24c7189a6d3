//! Lines of progress and results.

use xdfs::{Code, LimitedBy, TimeShares};

use super::*;

fn result(bytes: u64, resumed_bytes: u64) -> TransferResult {
    TransferResult {
        bytes,
        seconds: 1.5,
        channels: 3,
        resumed_bytes,
        retransmitted_bytes: 1,
        digest: DigestValue::None,
        target: Vec::new(),
        time_shares: TimeShares::only(LimitedBy::Network),
        is_skipped: false,
        passage: None,
        has_cut_time: false,
    }
}

fn quiet(files: u64) -> Reporter {
    let flags = OutputFlags {
        quiet: true,
        ..OutputFlags::default()
    };
    Reporter::new(
        flags,
        Run {
            files,
            ..Run::default()
        },
    )
}

fn label() -> Label {
    Label {
        source: "a".into(),
        target: "b".into(),
    }
}

#[test]
fn one_file_keeps_its_own_numbers() {
    let mut reporter = quiet(1);
    reporter.begin(&label());
    reporter.file_done(&label(), result(100, 40));
    assert_eq!(reporter.finish(), 0);
    assert!((reporter.totals.seconds - 1.5).abs() < f64::EPSILON);
    assert!((reporter.totals.bytes_per_second() - 40.0).abs() < 1e-9);
    assert_eq!(reporter.only_result().unwrap().bytes, 100);
}

#[test]
fn many_files_are_summed_up_and_the_first_failure_counts() {
    let mut reporter = quiet(4);
    reporter.file_done(&label(), result(100, 40));
    reporter.failure(Some(&label()), &Fault::new(Code::NotFound, "open", "gone"));
    reporter.failure(Some(&label()), &Fault::new(Code::NoSpace, "write", "full"));
    reporter.file_done(&label(), result(10, 0));
    assert_eq!(reporter.finish(), Code::NotFound.exit_code());
    let totals = &reporter.totals;
    assert_eq!((totals.files, totals.failed), (2, 2));
    assert_eq!((totals.bytes, totals.resumed_bytes), (110, 40));
    assert_eq!((totals.retransmitted_bytes, totals.channels), (2, 3));
    assert!(reporter.only_result().is_none());
}

#[test]
fn files_that_were_not_begun_count_as_failed() {
    let mut reporter = quiet(5);
    reporter.file_done(&label(), result(1, 0));
    reporter.failure(Some(&label()), &Interrupted::fault());
    assert_eq!(reporter.finish(), 130);
    assert_eq!(reporter.totals.failed, 4);
}

struct Interrupted;

impl Interrupted {
    fn fault() -> Fault {
        crate::interrupt::Interrupt::fault("copy")
    }
}

#[test]
fn a_url_is_named_by_its_path() {
    for (source, name) in [
        ("dir/a", "dir/a"),
        ("lab:/dir/a", "lab:/dir/a"),
        ("xdfs://alice@h:1/dir/a%20b", "/dir/a b"),
        ("xdfs://h/a?ticket=secret", "/a"),
        ("xdfs+unix://%2Fs/a/", "/a/"),
        ("ssh://h/~/a", "./a"),
        ("xdfs://h/", "xdfs://h/"),
        ("xdfs://h", "xdfs://h"),
    ] {
        let label = Label {
            source: source.into(),
            target: "b".into(),
        };
        assert_eq!(label.name(), name);
    }
}

#[test]
fn a_dry_run_says_would() {
    assert_eq!(
        dry_run_line(&label(), &result(2048, 0)),
        "would copy a to b: 2.05 kB\n"
    );
    assert!(dry_run_line(&label(), &result(2048, 1024)).contains("1.02 kB are there already"));
}
