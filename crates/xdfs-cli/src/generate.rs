//! Completions and manual pages, from the definition of the flags.
//!
//! In bash, zsh and fish the script of clap_complete gets a function that completes paths on
//! servers: it passes the line to [`crate::complete`]. The dynamic completion of clap_complete is
//! not stable, calls the program for flags too, and doesn't handle the colons of URLs in bash.

use std::io::Write as _;
use std::path::Path;

use clap::CommandFactory as _;
use clap::builder::{Resettable, StyledStr};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use xdfs::Fault;

use crate::console::Console;
use crate::exit_codes::{self, SUCCESS};
use crate::flags::{Cli, OutputFlags};
use crate::report::print;

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> u8 {
    done(print(script(shell)))
}

/// The start of the function that completes in zsh.
const ZSH_FUNCTION: &str = "\n_xdfs() {\n";

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "xdfs", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + include_str!("completions/places.bash"),
        Shell::Fish => script + include_str!("completions/places.fish"),
        Shell::Zsh => {
            let places = include_str!("completions/places.zsh");
            let first = format!("\n{places}{ZSH_FUNCTION}    _xdfs_places && return\n");
            script.replacen(ZSH_FUNCTION, &first, 1)
        }
        _ => script,
    }
}

/// Writes all manual pages into a directory, and prints their names.
pub(crate) fn man(dir: &Path) -> u8 {
    done(write_pages(dir))
}

fn done(result: Result<(), Fault>) -> u8 {
    match result {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

fn write_pages(dir: &Path) -> Result<(), Fault> {
    let at = |operation: &str, path: &Path, error: &std::io::Error| {
        Fault::from_io(operation, path.as_os_str().as_encoded_bytes(), error)
    };
    // One directory at most: a mistyped path isn't made.
    if !dir.is_dir() {
        std::fs::create_dir(dir).map_err(|e| at("make the directory", dir, &e))?;
    }
    let mut names = String::new();
    for (name, page) in pages().map_err(|e| at("make a manual page", dir, &e))? {
        let path = dir.join(name);
        std::fs::write(&path, page).map_err(|e| at("write", &path, &e))?;
        names += &format!("{}\n", path.display());
    }
    // In the end: where they can't be printed, all pages are there all the same.
    print(names)
}

/// The pages by file name: `xdfs.1`, `xdfs-cp.1`, `xdfs-user-add.1` and so on.
fn pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command();
    root.build();
    let mut pages = vec![page(root.clone())?];
    for command in root.get_subcommands() {
        pages.push(page(command.clone())?);
        for action in command.get_subcommands().filter(|a| a.get_name() != "help") {
            pages.push(page(action.clone())?);
        }
    }
    Ok(pages)
}

fn page(command: clap::Command) -> std::io::Result<(String, Vec<u8>)> {
    let is_root = command.get_subcommands().next().is_some();
    let version = env!("CARGO_PKG_VERSION");
    // The long help ends with the exit codes, which have their own section here.
    let reset = Resettable::<StyledStr>::Reset;
    let man = Man::new(command.after_long_help(reset)).source(format!("xdfs {version}"));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if is_root {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_extra_section(&mut page)?;
    exit_status(&mut page)?;
    Ok((man.get_filename(), page))
}

/// The section of exit codes, from the program's own table.
fn exit_status(page: &mut Vec<u8>) -> std::io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for row in exit_codes::table() {
        roff.control("TP", []);
        roff.text([bold(row.exit.to_string())]);
        let codes = match row.codes.as_slice() {
            [] => String::new(),
            codes => format!(" ({})", codes.join(", ")),
        };
        roff.text([roman(format!("{}{codes}", row.meaning))]);
    }
    page.write_all(roff.render().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_flags_and_exit_codes() {
        let pages = pages().unwrap();
        let mut names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        // These are there where their feature is built in.
        let proxy: &[&str] = &["proxy", "proxy-init", "proxy-info", "proxy-destroy"];
        let jobs: &[&str] = &[
            "service",
            "submit",
            "jobs",
            "job",
            "job-show",
            "job-wait",
            "job-cancel",
            "job-pause",
            "job-resume",
            "job-retry",
            "job-set",
            "job-manifest",
            "service-backup",
            "top",
            "job-delete",
            "schedules",
            "schedule",
            "schedule-delete",
            "verify-manifest",
            "token",
            "token-create",
            "token-list",
            "token-revoke",
            "secret",
            "secret-set",
            "secret-list",
            "secret-remove",
        ];
        for (is_built_in, commands) in [
            (cfg!(feature = "gsi"), proxy),
            (cfg!(feature = "service"), jobs),
        ] {
            for command in commands {
                let page = format!("xdfs-{command}.1");
                let count = names.len();
                names.retain(|name| *name != page);
                assert_eq!(count - names.len(), usize::from(is_built_in), "{page}");
            }
        }
        assert_eq!(
            names,
            [
                "xdfs.1",
                "xdfs-serve.1",
                "xdfs-cp.1",
                "xdfs-sync.1",
                "xdfs-status.1",
                "xdfs-wait.1",
                "xdfs-cancel.1",
                "xdfs-retry.1",
                "xdfs-relay.1",
                "xdfs-relay-ls.1",
                "xdfs-relay-show.1",
                "xdfs-relay-retry.1",
                "xdfs-relay-drop.1",
                "xdfs-shell.1",
                "xdfs-ls.1",
                "xdfs-stat.1",
                "xdfs-cat.1",
                "xdfs-find.1",
                "xdfs-sum.1",
                "xdfs-check.1",
                "xdfs-df.1",
                "xdfs-du.1",
                "xdfs-mkdir.1",
                "xdfs-rm.1",
                "xdfs-mv.1",
                "xdfs-ln.1",
                "xdfs-touch.1",
                "xdfs-chmod.1",
                "xdfs-chown.1",
                "xdfs-truncate.1",
                "xdfs-partial.1",
                "xdfs-partial-ls.1",
                "xdfs-partial-rm.1",
                "xdfs-agent.1",
                "xdfs-agent-run.1",
                "xdfs-agent-status.1",
                "xdfs-agent-stop.1",
                "xdfs-perf.1",
                "xdfs-tune.1",
                "xdfs-xioperf.1",
                "xdfs-tunnel.1",
                "xdfs-gridftp.1",
                "xdfs-gridftp-data-node.1",
                "xdfs-demo.1",
                "xdfs-remotes.1",
                "xdfs-whoami.1",
                "xdfs-keygen.1",
                "xdfs-trust.1",
                "xdfs-trust-list.1",
                "xdfs-trust-add.1",
                "xdfs-trust-remove.1",
                "xdfs-user.1",
                "xdfs-user-add.1",
                "xdfs-user-list.1",
                "xdfs-user-passwd.1",
                "xdfs-user-remove.1",
                "xdfs-completions.1",
                "xdfs-man.1"
            ]
        );
        for (name, page) in &pages {
            let text = String::from_utf8_lossy(page);
            assert!(
                text.contains("EXIT STATUS") && text.contains("not\\-found"),
                "{name}"
            );
        }
        let cp = String::from_utf8_lossy(&pages[2].1).replace('\\', "");
        for word in [
            "--limit-rate",
            "--no-resume",
            "--digest",
            "SOURCE",
            "Examples",
        ] {
            assert!(cp.contains(word), "{word}");
        }
    }

    #[test]
    fn every_shell_gets_a_script() {
        use clap::ValueEnum as _;
        for shell in Shell::value_variants() {
            let script = script(*shell);
            assert!(script.contains("limit-rate"), "{shell}");
            let calls = script.matches(crate::complete::COMMAND).count();
            let may_call = matches!(shell, Shell::Bash | Shell::Fish | Shell::Zsh);
            assert_eq!(calls, usize::from(may_call), "{shell}");
        }
        assert!(script(Shell::Zsh).starts_with("#compdef xdfs\n"));
    }
}
