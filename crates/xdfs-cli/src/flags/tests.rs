//! Command lines, and what is made of them.

use std::ffi::OsString;

use clap::CommandFactory;

use super::cp::DigestFlag;
use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_flag_and_command_has_a_help_text() {
    let mut command = Cli::command();
    command.build();
    for sub in command.get_subcommands() {
        assert!(sub.get_about().is_some(), "{}", sub.get_name());
        for arg in sub.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 8, "{} {}", sub.get_name(), arg.get_id());
        }
    }
}

#[test]
fn cp_takes_the_words_of_its_contract() {
    let line = "xdfs cp -n 8 -b 1M -w 4M --offset 1K --length 2K --limit-rate 400M --no-resume \
                --digest blake3 -f --dry-run --json -v a b xdfs://h/d/";
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let Command::Cp(cp) = parse(&line).unwrap().command else {
        panic!("not cp")
    };
    assert_eq!(cp.session.channels, Some(8));
    assert_eq!(cp.session.block_size, Some(1 << 20));
    assert_eq!(cp.session.window, Some(4 << 20));
    assert_eq!((cp.offset, cp.length), (1024, Some(2048)));
    assert_eq!(cp.limit_rate, Some(400_000_000));
    assert!(cp.no_resume && cp.force && cp.dry_run && cp.output.json);
    assert_eq!(cp.output.verbose, 1);
    assert_eq!(cp.digest, Some(DigestFlag::Blake3));
    assert_eq!(cp.places.sources, ["a", "b"].map(OsString::from));
    assert_eq!(cp.places.target, OsString::from("xdfs://h/d/"));
    for long in ["--channels 3", "--block-size 64K", "--window 1M", "--force"] {
        assert!(
            parse(&format!("xdfs cp {long} a xdfs://h/b")).is_ok(),
            "{long}"
        );
    }
}

#[test]
fn every_command_shows_examples_and_its_help() {
    let mut command = Cli::command();
    command.build();
    for sub in command.get_subcommands() {
        let groups = ["trust", "user"].contains(&sub.get_name());
        let after = sub.get_after_help().map(ToString::to_string);
        let shows = after.is_some_and(|text| text.contains("Examples:"));
        assert!(groups || shows, "{}", sub.get_name());
        let line = format!("xdfs {} --help", sub.get_name());
        let help = parse(&line).unwrap_err();
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp, "{line}");
    }
}

#[test]
fn put_and_get_are_cp() {
    for line in ["xdfs put a xdfs://h/b", "xdfs get xdfs://h/b ."] {
        assert!(
            matches!(parse(line).unwrap().command, Command::Cp(_)),
            "{line}"
        );
    }
}

#[test]
fn find_takes_its_tests_with_one_dash() {
    let line = "xdfs find xdfs://h -name *.x -type f -size +1k -mtime -2 -maxdepth 3 -print0";
    let words = line.split(' ').map(OsString::from);
    let cli = Cli::try_parse_from(super::words(words)).unwrap();
    let Command::Find(find) = cli.command else {
        panic!("not find")
    };
    assert_eq!(find.name, Some("*.x".into()));
    assert!(find.kind.is_some() && find.size.is_some() && find.mtime.is_some());
    assert_eq!((find.maxdepth, find.print0), (Some(3), true));
    // Elsewhere nothing is changed.
    let words: Vec<OsString> = ["xdfs", "ls", "-name"].map(OsString::from).into();
    assert_eq!(super::words(words.clone().into_iter()), words);
}

#[test]
fn cp_takes_options_between_its_places() {
    for line in [
        "xdfs cp xdfs://h/a --digest none b",
        "xdfs cp --digest none xdfs://h/a b",
        "xdfs cp xdfs://h/a b --digest none",
    ] {
        let Command::Cp(cp) = parse(line).unwrap().command else {
            panic!("not cp")
        };
        assert_eq!(cp.places.sources, [OsString::from("xdfs://h/a")], "{line}");
        assert_eq!(cp.places.target, OsString::from("b"), "{line}");
        assert_eq!(cp.digest, Some(DigestFlag::None), "{line}");
    }
    for line in ["xdfs cp", "xdfs cp a", "xdfs cp a --digest none"] {
        let error = parse(line).map(|_| ()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

/// Aliases and scripts add flags to what a user types.
#[test]
fn flags_may_come_again_and_the_last_value_counts() {
    let cp = |line: &str| match parse(line).unwrap().command {
        Command::Cp(cp) => cp,
        _ => panic!("not cp"),
    };
    let again = cp("xdfs cp -rr -n 2 --no-resume -n 3 a --no-resume xdfs://h/x");
    assert!(again.recursive && again.no_resume);
    assert_eq!(again.session.channels, Some(3));
    // A list remains one.
    let both = cp("xdfs cp -r --exclude a --exclude b x xdfs://h/x");
    assert_ne!(
        both.filter,
        cp("xdfs cp -r --exclude b x xdfs://h/x").filter
    );
    for line in ["xdfs rm -r -r -ff xdfs://h/x", "xdfs ls -l -l xdfs://h/"] {
        parse(line).unwrap();
    }
}

#[test]
fn standard_streams_are_places() {
    let Command::Cp(cp) = parse("xdfs cp - xdfs://h/x").unwrap().command else {
        panic!()
    };
    assert_eq!(cp.places.sources, [OsString::from("-")]);
    let Command::Cp(cp) = parse("xdfs cp xdfs://h/x -").unwrap().command else {
        panic!()
    };
    assert_eq!(cp.places.target, OsString::from("-"));
}

#[test]
fn bad_values_are_refused() {
    for line in [
        "xdfs cp a",
        "xdfs cp -n 0 a xdfs://h/b",
        "xdfs cp -n 5000 a xdfs://h/b",
        "xdfs cp -b 3000 a xdfs://h/b",
        "xdfs cp --limit-rate fast a xdfs://h/b",
        "xdfs cp --digest md5 a xdfs://h/b",
        "xdfs cp -q -v a xdfs://h/b",
        "xdfs perf",
        "xdfs perf xdfs://h --upload --download",
        "xdfs perf xdfs://h --bytes 1G --seconds 2",
        "xdfs perf xdfs://h --seconds 0",
        "xdfs perf xdfs://h --seconds nan",
        "xdfs tune",
        "xdfs tune xdfs://h --upload --download",
        "xdfs tune xdfs://h --max-bytes 0",
        "xdfs tune xdfs://h --max-time 0",
        "xdfs tune xdfs://h --plot picture.jpg",
        "xdfs tune xdfs://h --plot .png",
        "xdfs tunnel xdfs://h",
        "xdfs tunnel -L 8080 xdfs://h",
        "xdfs tunnel -L 8080:db:5432",
        "xdfs serve --listen",
        "xdfs serve --listen 1:2:3",
        "xdfs demo --size 0",
        "xdfs completions tcsh",
        "xdfs",
        "xdfs mv a",
        "xdfs rm",
        "xdfs chmod xdfs://h/a",
        "xdfs chmod 9 xdfs://h/a",
        "xdfs touch -d never xdfs://h/a",
        "xdfs find xdfs://h -type x",
        "xdfs sync a",
        "xdfs sync --compare magic a xdfs://h/b",
        "xdfs sync --max-delete 3 a xdfs://h/b",
        "xdfs sync --delete --max-delete few a xdfs://h/b",
        "xdfs sync --force a xdfs://h/b",
    ] {
        assert!(parse(line).is_err(), "{line} was accepted");
    }
}

#[test]
fn serve_takes_many_addresses_and_switches_with_values() {
    let line = "xdfs serve --listen [::1]:0 --listen unix:/tmp/s --read-only=false";
    let Command::Serve(serve) = parse(line).unwrap().command else {
        panic!()
    };
    assert_eq!(serve.listen.len(), 2);
    assert_eq!(serve.read_only, Some(false));
    assert_eq!(serve.insecure, None);
    let Command::Serve(serve) = parse("xdfs serve --read-only --insecure").unwrap().command else {
        panic!()
    };
    assert_eq!((serve.read_only, serve.insecure), (Some(true), Some(true)));
}

/// The commands that move data and serve them explain each flag.
#[test]
fn every_flag_has_a_long_text() {
    let command = Cli::command();
    let mut without = Vec::new();
    for name in ["cp", "sync", "serve", "perf", "tune", "tunnel"] {
        let command = command.find_subcommand(name).unwrap();
        for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
            let text = arg.get_long_help().map(ToString::to_string);
            if !text.is_some_and(|text| text.contains("\n\n")) {
                without.push(format!("{name} {}", arg.get_id()));
            }
        }
    }
    assert!(without.is_empty(), "{without:?}");
    for command in command.get_subcommands() {
        for arg in command.get_arguments() {
            assert!(
                arg.get_help().is_some(),
                "{}: {}",
                command.get_name(),
                arg.get_id()
            );
        }
    }
}

#[test]
fn flags_stand_under_their_own_headings() {
    let security = SecurityFlags::augment_args(clap::Command::new("security"));
    let is_security = |arg: &clap::Arg| {
        let mut own = security.get_arguments();
        own.any(|own| own.get_id() == arg.get_id())
    };
    let mut strangers = Vec::new();
    for command in Cli::command().get_subcommands() {
        for arg in command.get_arguments() {
            if arg.get_help_heading() == Some(SECURITY) && !is_security(arg) {
                strangers.push(format!("{} {}", command.get_name(), arg.get_id()));
            }
        }
    }
    assert!(strangers.is_empty(), "{strangers:?}");
}
