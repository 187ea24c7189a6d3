//! `xdfs cp --recursive`: copies trees one after the other. Sources other than directories are left
//! to the queue.

use std::ops::ControlFlow;
use std::path::PathBuf;

use xdfs::operations::{ListedPaths, Removal, no_directory};
use xdfs::settings::SessionSettings;
use xdfs::{
    Answer, Attributes, Call, Client, Code, Fault, FileKind, Filter, RemotePlace, ServerFile,
    TransferParameters, TreeEvent, TreeOptions, TreeResult, TreeStripes,
};

use super::list;
use super::origins::{Origins, check_removal};
use super::removal::{SourceRemoval, path_at, path_here};
use super::striped;
use crate::client::SharedClient;
use crate::flags::CpFlags;
use crate::interrupt::Interrupt;
use crate::missing;
use crate::place::{Place, check_meant_here, lies_in, shown};
use crate::report::{Label, Reporter};
use crate::session::{self, Connector, report_session};
use crate::state;

/// A tree to copy.
#[derive(Debug)]
pub(crate) struct Tree {
    label: Label,
    server: RemotePlace,
    route: TreeDirection,
    /// The session in which the source was looked up.
    client: Option<SharedClient>,
}

#[derive(Debug)]
enum TreeDirection {
    Upload(PathBuf),
    Download(PathBuf),
    /// From another server.
    Between(ServerFile),
}

/// Moves the directories from the sources of `flags` to the result.
///
/// # Errors
/// An invalid operand, or a failed lookup on a server.
pub(super) fn take_trees(
    connector: &Connector,
    flags: &mut CpFlags,
    origins: &Origins,
) -> Result<Vec<Tree>, Fault> {
    let config = connector.context.config()?;
    let target = Place::parse(config, &flags.places.target)?;
    let mut trees: Vec<Tree> = Vec::new();
    let mut rest = Vec::new();
    for word in std::mem::take(&mut flags.places.sources) {
        let label = Label {
            source: shown(&word),
            target: shown(&flags.places.target),
        };
        match (Place::parse(config, &word)?, &target) {
            (Place::Local(path), Place::Remote(server)) if path.is_dir() => trees.push(Tree {
                label,
                server: server.clone(),
                route: TreeDirection::Upload(path),
                client: None,
            }),
            (Place::Local(source), Place::Local(path)) if source.is_dir() => {
                check_meant_here(config, "plan the copy", [&*word, &*flags.places.target])?;
                trees.push(Tree {
                    label,
                    server: RemotePlace::here(&source)?,
                    route: TreeDirection::Download(path.clone()),
                    client: None,
                });
            }
            (Place::Remote(server), Place::Local(path)) => {
                // Reuse the session, since opening one takes round trips.
                let open = trees
                    .last()
                    .filter(|last| last.server.shares_session(&server));
                let client = match open.and_then(|last| last.client.clone()) {
                    Some(client) => client,
                    None => connector.connect(&server)?,
                };
                let there = attributes_of(&client, &server.path)?;
                if there.is_some_and(|a| a.kind == FileKind::Directory) {
                    trees.push(Tree {
                        label,
                        server,
                        route: TreeDirection::Download(path.clone()),
                        client: Some(client),
                    });
                } else {
                    connector.leave(&server, client);
                    rest.push(word);
                }
            }
            (Place::Remote(place), Place::Remote(server)) => {
                let login = flags.session.security.login();
                login.check_one_password([&place, server])?;
                let client = origins.connect(&place)?;
                let there = attributes_of(&client, &place.path)?;
                if there.is_some_and(|a| a.kind == FileKind::Directory) {
                    check_between(flags, [&place, server])?;
                    check_not_into_itself(&place, server)?;
                    trees.push(Tree {
                        label,
                        server: server.clone(),
                        route: TreeDirection::Between(origins.file(&place)),
                        client: None,
                    });
                } else {
                    rest.push(word);
                }
            }
            _ => rest.push(word),
        }
    }
    flags.places.sources = rest;
    Ok(trees)
}

/// Checks that the target of several sources is a directory, in which each keeps its name.
///
/// # Errors
/// It isn't, or can't be looked up.
pub(super) fn check_target(connector: &Connector, flags: &CpFlags) -> Result<(), Fault> {
    let found = match Place::parse(connector.context.config()?, &flags.places.target)? {
        Place::Local(path) => match path.is_dir() {
            true => return Ok(()),
            false => path.exists(),
        },
        Place::Remote(server) => {
            let client = connector.connect(&server)?;
            let found = attributes_of(&client, &server.path);
            connector.leave(&server, client);
            match found? {
                Some(found) if found.kind == FileKind::Directory => return Ok(()),
                Some(_) => true,
                None => {
                    let directory = [&server.path[..], b"/"].concat();
                    let hint = missing::hint(&server, &directory);
                    let fault = no_directory(false).path(shown(&flags.places.target));
                    return Err(fault.hint(hint));
                }
            }
        }
        Place::Standard => true,
    };
    Err(no_directory(found).path(shown(&flags.places.target)))
}

/// Refuses what one of two servers can't keep.
fn check_between(flags: &CpFlags, servers: [&RemotePlace; 2]) -> Result<(), Fault> {
    check_removal(flags.remove_source, servers)?;
    let traits = servers.map(|server| server.address.traits());
    let keeps_all = traits.iter().all(|there| there.packs);
    let has_links = traits.iter().all(|there| there.hard_links);
    let wanted = [
        (flags.archive && !(keeps_all && has_links), "--archive"),
        (flags.owner && !keeps_all, "--owner"),
        (flags.xattrs && !keeps_all, "--xattrs"),
        (flags.read_times && !keeps_all, "--read-times"),
        (flags.hard_links && !has_links, "--hard-links"),
    ];
    let Some((_, flag)) = wanted.iter().find(|(is_wanted, _)| *is_wanted) else {
        return Ok(());
    };
    let cause = format!("{flag} can't be done between servers of these kinds");
    Err(Fault::new(Code::InvalidArgument, "plan the copy", cause)
        .hint("--recursive keeps modes and modification times"))
}

/// Refuses to copy a directory into itself, which would never end.
fn check_not_into_itself(source: &RemotePlace, target: &RemotePlace) -> Result<(), Fault> {
    if !lies_in(target, source) {
        return Ok(());
    }
    let cause = "the target is the directory itself, or in it";
    Err(Fault::new(Code::InvalidArgument, "plan the copy", cause).path(&target.path))
}

/// Copies the trees, and reports failures.
pub(super) fn copy(
    connector: &Connector,
    flags: &CpFlags,
    trees: &[Tree],
    origins: &Origins,
    interrupt: &Interrupt,
    reporter: &mut Reporter,
) {
    let selection = match TreeSelection::read(flags) {
        Ok(selection) => selection,
        Err(fault) => return reporter.failure(None, &fault),
    };
    for tree in trees {
        if interrupt.requested() {
            return;
        }
        let copied = copy_one(
            connector, flags, &selection, tree, origins, interrupt, reporter,
        );
        match copied {
            Ok((label, left_out, result)) => {
                let mut all = result.clone();
                all.failed += left_out;
                reporter.tree_done(&label, &all);
                if flags.remove_source && !flags.dry_run {
                    let removal =
                        removal_of(connector, (tree, &label), &result, origins, interrupt);
                    match removal {
                        Ok(removal) => removal.run(&selection.filter, reporter),
                        Err(fault) => reporter.failure(Some(&label), &fault),
                    }
                }
            }
            Err(fault) => reporter.failure(Some(&tree.label), &fault),
        }
    }
}

/// The part of each tree that is copied.
struct TreeSelection {
    filter: Filter,
    /// The paths of --files-from.
    listed: Option<ListedPaths>,
}

impl TreeSelection {
    fn read(flags: &CpFlags) -> Result<Self, Fault> {
        let filter = flags.filter.filter()?;
        let Some(list) = &flags.files_from else {
            let listed = None;
            return Ok(Self { filter, listed });
        };
        let listed = list::read(list, flags.null)?;
        let filter = match listed.has_all {
            true => filter,
            false => filter.with_only(listed.paths.iter().cloned()),
        };
        let listed = Some(listed);
        Ok(Self { filter, listed })
    }
}

/// Copies a tree. Returns its label with the place that it went to, the number of listed paths that
/// can't be copied, and the result of the others.
fn copy_one(
    connector: &Connector,
    flags: &CpFlags,
    selection: &TreeSelection,
    tree: &Tree,
    origins: &Origins,
    interrupt: &Interrupt,
    reporter: &mut Reporter,
) -> Result<(Label, u64, TreeResult), Fault> {
    let open = tree
        .client
        .clone()
        .filter(|client| client.ended().is_none());
    let client = match open {
        Some(client) => client,
        None => connector.connect(&tree.server)?,
    };
    // Listed paths that aren't copied, and why.
    let mut left_out = Vec::new();
    if let Some(listed) = &selection.listed {
        let root = match &tree.route {
            TreeDirection::Between(source) => {
                let origin = origins.connect(source.place())?;
                path_at(&origin, source.place().path.clone())
            }
            TreeDirection::Upload(source) => {
                path_here(source.as_os_str().as_encoded_bytes().to_vec())
            }
            TreeDirection::Download(_) => path_at(&client, tree.server.path.clone()),
        };
        left_out.extend(listed.refused.iter().cloned());
        left_out.extend(listed.unreachable(&root, flags.copy_links));
    }
    let left_out_count = left_out.len() as u64;
    let named = match &tree.route {
        TreeDirection::Download(target) => target.as_os_str().as_encoded_bytes(),
        TreeDirection::Upload(_) | TreeDirection::Between(_) => &tree.server.path,
    };
    let mut label = tree.label.clone();
    let settings = connector.context.config()?.session(&tree.server);
    let options = TreeOptions {
        stripes: stripes_of(connector, flags, tree)?,
        ..options(settings, flags, &selection.filter, interrupt)
    };
    let mut observer = |event: TreeEvent<'_>| {
        report_session(&client, reporter);
        connector.report_members(reporter);
        match event {
            TreeEvent::Target(target) => {
                label = tree.label.landed(named, target);
                for (path, fault) in left_out.drain(..) {
                    reporter.tree_failure(&label, &path, &fault);
                }
            }
            TreeEvent::Progress(result) => reporter.tree_progress(&label, result),
            TreeEvent::Failed { path, fault } => reporter.tree_failure(&label, path, fault),
            TreeEvent::File {
                path,
                bytes,
                digest,
                ..
            } => reporter.tree_file(&label, path, bytes, digest),
            TreeEvent::Warning(fault) => reporter.warn(fault),
            TreeEvent::Step { step, path, from } => reporter.tree_step(step, path, from),
            _ => {}
        }
        if interrupt.requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let result = match &tree.route {
        TreeDirection::Upload(source) => {
            client.upload_tree(source, &tree.server.path, &options, &mut observer)
        }
        TreeDirection::Download(target) => {
            client.download_tree(&tree.server.path, target, &options, &mut observer)
        }
        TreeDirection::Between(source) => {
            client.copy_tree_from(source, &tree.server.path, &options, &mut observer)
        }
    };
    report_session(&client, reporter);
    origins.report(reporter);
    connector.leave(&tree.server, client);
    let result = result.map_err(|fault| session::lost_with_ssh(fault, interrupt))?;
    Ok((label, left_out_count, result))
}

/// The groups of servers that move the large files of a tree.
fn stripes_of(connector: &Connector, flags: &CpFlags, tree: &Tree) -> Result<TreeStripes, Fault> {
    if flags.dry_run || !flags.stripe.stripe {
        return Ok(TreeStripes::default());
    }
    let stripes = match &tree.route {
        TreeDirection::Upload(_) => connector.tree_stripes(None, Some(&tree.server)),
        TreeDirection::Download(_) => connector.tree_stripes(Some(&tree.server), None),
        TreeDirection::Between(file) => {
            connector.tree_stripes(Some(file.place()), Some(&tree.server))
        }
    }?;
    if stripes.source.is_some() || stripes.target.is_some() {
        striped::check(flags)?;
    }
    Ok(stripes)
}

/// The removal of the source of a tree that was copied.
fn removal_of<'a>(
    connector: &Connector,
    (tree, label): (&Tree, &'a Label),
    result: &TreeResult,
    origins: &Origins,
    interrupt: &'a Interrupt,
) -> Result<SourceRemoval<'a>, Fault> {
    let client = connector.connect(&tree.server)?;
    let there = |path: &[u8]| path_at(&client, path.to_vec());
    let target = &result.target;
    let (source, target) = match &tree.route {
        TreeDirection::Upload(source) => {
            let source = source.as_os_str().as_encoded_bytes().to_vec();
            (path_here(source), there(target))
        }
        TreeDirection::Download(_) => (there(&tree.server.path), path_here(target.clone())),
        TreeDirection::Between(source) => {
            let origin = origins.connect(source.place())?;
            let source = path_at(&origin, source.place().path.clone());
            (source, there(target))
        }
    };
    Ok(SourceRemoval {
        label,
        removal: Removal { source, target },
        reports_all: result.failed == 0,
        interrupt,
    })
}

/// The options of the copy of a tree.
pub(super) fn options(
    settings: SessionSettings,
    flags: &CpFlags,
    filter: &Filter,
    interrupt: &Interrupt,
) -> TreeOptions {
    let all = flags.archive;
    let retry = settings.retry(flags.retry.retries);
    TreeOptions {
        parameters: TransferParameters {
            overwrite: flags.overwrites(),
            dry_run: flags.dry_run,
            digest: flags.digest.map(Into::into),
            rate_bytes_per_s_max: settings.rate(flags.limit_rate),
            resume: flags.resume(),
        },
        skip: flags.skip(),
        owner: all || flags.owner,
        xattrs: all || flags.xattrs,
        read_times: flags.read_times,
        hard_links: all || flags.hard_links,
        follow_links: flags.copy_links,
        filter: filter.clone(),
        durability: flags.durability.into(),
        file_digests: (flags.output.json || flags.transfer_log.is_some())
            .then(|| flags.digest.map(Into::into).unwrap_or_default()),
        journal: state::trees(),
        count_source: flags.output.shows_progress(),
        reconnect_observer: session::reconnect_observer(flags.output, retry.retries_max, interrupt),
        retry,
        ..TreeOptions::default()
    }
}

fn attributes_of(client: &Client, path: &[u8]) -> Result<Option<Attributes>, Fault> {
    let call = Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    match client.call(call) {
        Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
        Ok(_) => Ok(None),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}
