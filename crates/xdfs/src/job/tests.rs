//! The text form of jobs: every option is in it, and nothing else is taken for one.
//!
//! Values are made, and compared, without leaving a field out. So an option that is added has to be
//! added here, and fails the comparison if it has no text form.

use std::path::PathBuf;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use xdfs_engine::TransferParameters;
use xdfs_proto::DigestKind;
use xdfs_proto::frame::Resume;

use super::*;
use crate::remote::RemotePlace;
use crate::skip::Skip;
use crate::tree::{Compare, DeletionConsent, Durability, FileLimits, Filter, FilterRule};

fn duration() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns))
}

fn digest() -> impl Strategy<Value = Option<DigestKind>> {
    option::of(select(vec![
        DigestKind::None,
        DigestKind::Crc64Nvme,
        DigestKind::Blake3,
    ]))
}

fn path() -> impl Strategy<Value = PathBuf> {
    let like_others = select(vec![
        "-",
        "mem:x",
        "file:/a",
        "FILE:///a",
        "//host/\u{1}",
        "xdfs://h/p",
        "100%",
        "%41",
        "a b",
    ]);
    let like_others = like_others.prop_map(|text| text.as_bytes().to_vec());
    let any = vec(1..=255_u8, 1..20);
    let usable = |bytes: Vec<u8>| xdfs_sys::fs::path_from_bytes(&bytes).ok();
    prop_oneof![like_others, any].prop_filter_map("a path of this system", usable)
}

fn place() -> impl Strategy<Value = JobPlace> {
    let servers = select(vec![
        "xdfs://host",
        "xdfs://user@host:1",
        "xdfs://[::1]:2/",
        "xdfs+unix://%2Ftmp%2Fs",
        "xdfs+quic+zstd://host",
        "ssh://user@host",
        "ftp://host",
        "ftps://user@host",
        "gsiftp://host",
        "sshftp://host:22",
    ]);
    let pins = select(vec![
        "",
        "/?pin=SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ]);
    let server = (
        servers,
        pins,
        vec(1..=255_u8, 0..20),
        option::of("[a-z]{1,5}"),
    );
    let server = server.prop_map(|(server, pin, path, profile)| {
        let pinned = format!("{}{pin}", server.trim_end_matches('/'));
        let url = if server.starts_with("xdfs") {
            &pinned
        } else {
            server
        };
        let place: RemotePlace = url.parse().unwrap();
        JobPlace::Server(RemotePlace {
            profile,
            ..place.at([b"/", &path[..]].concat())
        })
    });
    prop_oneof![
        path().prop_map(JobPlace::Local),
        Just(JobPlace::Memory),
        Just(JobPlace::Standard),
        server,
    ]
}

fn way() -> impl Strategy<Value = Way> {
    select(vec![Way::Any, Way::Direct, Way::Client])
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    (any::<u32>(), duration(), duration(), duration()).prop_map(
        |(retries_max, pause_first, pause_max, pause_asked_max)| RetryPolicy {
            retries_max,
            pause_first,
            pause_max,
            pause_asked_max,
        },
    )
}

fn parameters() -> impl Strategy<Value = TransferParameters> {
    let resume = select(vec![Resume::Never, Resume::Trust, Resume::Verify]);
    let rate = any::<Option<u64>>();
    let all = (digest(), any::<bool>(), resume, rate, any::<bool>());
    all.prop_map(
        |(digest, overwrite, resume, rate_bytes_per_s_max, dry_run)| TransferParameters {
            digest,
            overwrite,
            resume,
            rate_bytes_per_s_max,
            dry_run,
        },
    )
}

fn skip() -> impl Strategy<Value = Skip> {
    select(vec![
        Skip::Never,
        Skip::Identical,
        Skip::SizeAndTime,
        Skip::Content,
        Skip::NotOlder,
        Skip::All,
    ])
}

fn transfer_options() -> impl Strategy<Value = TransferOptions> {
    let duration = option::of(duration());
    let (offset, length) = (any::<u64>(), any::<Option<u64>>());
    let all = (
        parameters(),
        offset,
        length,
        duration,
        skip(),
        any::<bool>(),
    );
    all.prop_map(
        |(parameters, offset, length, duration, skip, exact_mode)| TransferOptions {
            parameters,
            offset,
            length,
            duration,
            skip,
            exact_mode,
        },
    )
}

fn filter() -> impl Strategy<Value = Filter> {
    let pattern = || select(vec!["*.o", "/a/b", "d/", "**/x y", "[!a]?"]);
    let rule = prop_oneof![
        pattern().prop_map(|text| FilterRule::Exclude(text.to_owned())),
        pattern().prop_map(|text| FilterRule::Include(text.to_owned())),
        vec(any::<u8>(), 0..20).prop_map(FilterRule::Lines),
    ];
    let ages = (option::of(duration()), option::of(duration()));
    let limits = (any::<Option<u64>>(), any::<Option<u64>>(), ages).prop_map(
        |(size_min, size_max, (age_min, age_max))| FileLimits {
            size_min,
            size_max,
            age_min,
            age_max,
        },
    );
    let only = option::of(vec(vec(any::<u8>(), 0..9), 0..3));
    (vec(rule, 0..3), limits, only, any::<bool>()).prop_map(|(rules, limits, only, first)| {
        let filter = Filter::new(&rules).unwrap();
        // The order doesn't matter.
        let filter = if first {
            filter.with_limits(limits)
        } else {
            filter
        };
        let filter = match only {
            Some(paths) => filter.with_only(paths),
            None => filter,
        };
        if first {
            filter
        } else {
            filter.with_limits(limits)
        }
    })
}

fn tree_options() -> impl Strategy<Value = TreeOptions> {
    let durability = select(vec![Durability::Batch, Durability::Full, Durability::None]);
    let flags: [_; 6] = std::array::from_fn(|_| any::<bool>());
    let values = (
        parameters(),
        skip(),
        filter(),
        durability,
        digest(),
        retry(),
    );
    (values, flags, option::of(path())).prop_map(|(values, flags, journal)| {
        let (parameters, skip, filter, durability, file_digests, retry) = values;
        let [
            owner,
            xattrs,
            read_times,
            hard_links,
            follow_links,
            count_source,
        ] = flags;
        TreeOptions {
            parameters,
            skip,
            owner,
            xattrs,
            read_times,
            hard_links,
            follow_links,
            filter,
            durability,
            file_digests,
            journal,
            count_source,
            retry,
            stripes: crate::TreeStripes::default(),
            reconnect_observer: crate::retry::ReconnectObserver::default(),
        }
    })
}

fn sync_options() -> impl Strategy<Value = SyncOptions> {
    let compare = select(vec![Compare::SizeAndTime, Compare::Digest]);
    let flags: [_; 3] = std::array::from_fn(|_| any::<bool>());
    let backup = option::of(vec(any::<u8>(), 0..9));
    (tree_options(), compare, flags, any::<Option<u64>>(), backup).prop_map(
        |(tree, compare, [delete, force, delta], delete_max, backup)| SyncOptions {
            tree,
            compare,
            delete,
            delete_max,
            consent: DeletionConsent::default(),
            force,
            backup,
            delta,
        },
    )
}

fn job() -> impl Strategy<Value = Job> {
    let ends = || (place(), place(), way());
    prop_oneof![
        (ends(), transfer_options(), retry()).prop_map(
            |((source, target, way), options, retry)| Job::File(FileJob {
                source,
                target,
                way,
                options,
                retry,
            })
        ),
        (ends(), tree_options()).prop_map(|((source, target, way), options)| Job::Tree(TreeJob {
            source,
            target,
            way,
            options,
        })),
        (ends(), sync_options()).prop_map(|((source, target, way), options)| Job::Sync(SyncJob {
            source,
            target,
            way,
            options,
        })),
        (place(), any::<bool>(), retry()).prop_map(|(place, recursive, retry)| Job::Remove(
            RemoveJob {
                place,
                recursive,
                retry,
            }
        )),
    ]
}

fn assert_same_tree(a: &TreeOptions, b: &TreeOptions) {
    let TreeOptions {
        parameters,
        skip,
        owner,
        xattrs,
        read_times,
        hard_links,
        follow_links,
        filter,
        durability,
        file_digests,
        journal,
        count_source,
        retry,
        // Sessions.
        stripes: _,
        // Code.
        reconnect_observer: _,
    } = a;
    assert_eq!(*parameters, b.parameters);
    assert_eq!(*skip, b.skip);
    assert_eq!(*owner, b.owner);
    assert_eq!(*xattrs, b.xattrs);
    assert_eq!(*read_times, b.read_times);
    assert_eq!(*hard_links, b.hard_links);
    assert_eq!(*follow_links, b.follow_links);
    // It also finds the journal of an earlier run.
    assert_eq!(filter.identity(), b.filter.identity());
    assert_eq!(format!("{filter:?}"), format!("{:?}", b.filter));
    assert_eq!(*durability, b.durability);
    assert_eq!(*file_digests, b.file_digests);
    assert_eq!(*journal, b.journal);
    assert_eq!(*count_source, b.count_source);
    assert_eq!(*retry, b.retry);
}

fn assert_same_sync(a: &SyncOptions, b: &SyncOptions) {
    let SyncOptions {
        tree,
        compare,
        delete,
        delete_max,
        // Code.
        consent: _,
        force,
        backup,
        delta,
    } = a;
    assert_same_tree(tree, &b.tree);
    assert_eq!(*compare, b.compare);
    assert_eq!(*delete, b.delete);
    assert_eq!(*delete_max, b.delete_max);
    assert_eq!(*force, b.force);
    assert_eq!(*backup, b.backup);
    assert_eq!(*delta, b.delta);
}

fn assert_same(a: &Job, b: &Job) {
    match (a, b) {
        (Job::File(a), Job::File(b)) => assert_eq!(a, b),
        (Job::Tree(a), Job::Tree(b)) => {
            let TreeJob {
                source,
                target,
                way,
                options,
            } = a;
            assert_eq!((source, target, way), (&b.source, &b.target, &b.way));
            assert_same_tree(options, &b.options);
        }
        (Job::Sync(a), Job::Sync(b)) => {
            let SyncJob {
                source,
                target,
                way,
                options,
            } = a;
            assert_eq!((source, target, way), (&b.source, &b.target, &b.way));
            assert_same_sync(options, &b.options);
        }
        (Job::Remove(a), Job::Remove(b)) => assert_eq!(a, b),
        _ => panic!("{a:?} became {b:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_job_has_a_text(job in job()) {
        let text = job.to_json().unwrap();
        let read = Job::from_json(&text).unwrap();
        assert_same(&job, &read);
        prop_assert_eq!(read.to_json().unwrap(), text);
    }

    #[test]
    fn no_text_is_a_panic(text: String, at in 0..400_usize, byte: char) {
        let _ = Job::from_json(&text);
        let mut damaged: Vec<char> = COPY.chars().collect();
        let at = at % damaged.len();
        damaged[at] = byte;
        let _ = Job::from_json(&damaged.into_iter().collect::<String>());
    }
}

/// A text of version 1, which stays readable.
const COPY: &str = r#"{"version":1,"job":{"tree":{"source":"/data/a","target":"xdfs://lab/archive",
    "way":"relayed","options":{"parameters":{"digest":"blake3","resume":"verify"},"skip":"content",
    "filter":{"rules":[{"exclude":"*.o"},{"lines":"a\n!b\n"}],"limits":{"age_min":"60.5s"}},
    "durability":"full","journal":"/var/lib/trees","retry":{"pause_max":"30s"}}}}}"#;

#[test]
fn a_text_of_the_first_version_is_read() {
    let Job::Tree(job) = Job::from_json(COPY).unwrap() else {
        panic!("it is a tree");
    };
    assert_eq!(job.source, JobPlace::Local("/data/a".into()));
    assert!(matches!(&job.target, JobPlace::Server(place) if place.path == b"/archive"));
    assert_eq!(job.way, Way::Client);
    let rules = [
        FilterRule::Exclude("*.o".to_owned()),
        FilterRule::Lines(b"a\n!b\n".to_vec()),
    ];
    let expected = TreeOptions {
        parameters: TransferParameters {
            digest: Some(DigestKind::Blake3),
            resume: Resume::Verify,
            ..TransferParameters::default()
        },
        skip: Skip::Content,
        filter: Filter::new(&rules).unwrap().with_limits(FileLimits {
            age_min: Some(Duration::from_millis(60_500)),
            ..FileLimits::default()
        }),
        durability: Durability::Full,
        journal: Some("/var/lib/trees".into()),
        retry: RetryPolicy {
            pause_max: Duration::from_secs(30),
            ..RetryPolicy::default()
        },
        ..TreeOptions::default()
    };
    assert_same_tree(&job.options, &expected);
}

#[test]
fn the_rules_of_a_file_are_in_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules");
    std::fs::write(&rules, "*.o\n\u{fc}\n").unwrap();
    let filter = Filter::new(&[FilterRule::File(rules)]).unwrap();
    let text = serde_json::to_string(&filter).unwrap();
    drop(folder);
    let read: Filter = serde_json::from_str(&text).unwrap();
    assert!(read.leaves_out(b"a.o", false) && read.leaves_out("\u{fc}".as_bytes(), false));
    assert_eq!(read.identity(), filter.identity());
}

#[test]
fn nothing_unknown_is_read() {
    for (field, other) in [
        (r#""version":1,"#, ""),
        (r#""version":1"#, r#""version":"1""#),
        (r#""version":1"#, r#""version":1,"owner":"a""#),
        (r#"{"tree""#, r#"{"forest""#),
        (r#""way""#, r#""ways""#),
        (r#""relayed""#, r#""sideways""#),
        (r#""skip""#, r#""omit""#),
        (r#""content""#, r#""contents""#),
        (r#""parameters":{"#, r#""parameters":{"channels":4,"#),
        (r#""blake3""#, r#""md5""#),
        (r#""verify""#, r#""check""#),
        (r#""limits":{"#, r#""limits":{"size":4,"#),
        (r#""rules""#, r#""rule""#),
        (r#"{"exclude":"*.o"}"#, r#"{"file":"/etc/passwd"}"#),
        (r#""60.5s""#, "60.5"),
        (r#""60.5s""#, r#""1m""#),
        (r#""pause_max""#, r#""pause""#),
        (r#""/data/a""#, r#""""#),
        (r#""/data/a""#, r#""mem:zero""#),
        (r#""/data/a""#, r#""file:%4""#),
        (r#""/data/a""#, r#""file://host/a""#),
        (r#""/data/a""#, r#"{"url":"/data/a","profile":"p"}"#),
        (r#""/data/a""#, r#"{"url":"xdfs://h/a"}"#),
        (r#""xdfs://lab/archive""#, r#""xdfs://""#),
    ] {
        assert!(COPY.contains(field), "{field}");
        let fault = Job::from_json(&COPY.replacen(field, other, 1)).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{field} {other} {fault}");
    }
    let later = COPY.replace(r#""version":1"#, r#""version":2,"new":[]"#);
    assert_eq!(Job::from_json(&later).unwrap_err().code, Code::Unsupported);
}

#[test]
fn no_secret_is_in_a_text() {
    for url in ["ftp://user:hush@host/a", "xdfs://host/a?ticket=hush"] {
        let job = Job::Remove(RemoveJob {
            place: JobPlace::Server(url.parse().unwrap()),
            recursive: false,
            retry: RetryPolicy::default(),
        });
        let written = job.to_json().unwrap_err();
        let text = format!(r#"{{"version":1,"job":{{"remove":{{"place":"{url}"}}}}}}"#);
        let read = Job::from_json(&text).unwrap_err();
        for fault in [written, read] {
            assert_eq!(fault.code, Code::InvalidArgument);
            assert!(fault.cause.contains("no secrets"), "{fault}");
            assert!(!fault.to_string().contains("hush"), "{fault}");
        }
    }
    // Nor is anything left out that no URL has.
    let named = RemotePlace {
        address: crate::remote::Address::Memory("here".to_owned()),
        ..url_of("xdfs://host/a")
    };
    let job = Job::Remove(RemoveJob {
        place: JobPlace::Server(named),
        recursive: false,
        retry: RetryPolicy::default(),
    });
    assert_eq!(job.to_json().unwrap_err().code, Code::InvalidArgument);
}

fn url_of(url: &str) -> RemotePlace {
    url.parse().unwrap()
}
