//! `xdfs ls` and `xdfs stat`.

use std::cmp::Reverse;
use std::io::IsTerminal as _;

use jiff::tz::TimeZone;
use xdfs::operations::path::join;
use xdfs::operations::{
    InFlight, LISTINGS_AHEAD, List as _, stat as attributes_of, unexpected_answer,
};
use xdfs::record::Record;
use xdfs::{
    Answer, Attributes, Call, Client, Code, Entry, Fault, FileKind, Listing, OwnerNames, Quoting,
};

use super::command::PathCommand;
use super::format::{StatFormat, description, shown_name};
use super::mode::mode_text;
use super::operand::Operand;
use super::text::{align, human};
use super::time;
use crate::console::wants_color;
use crate::context::Context;
use crate::flags::{ColorFlag, LsFlags, StatFlags};

/// The permissions to execute, of anyone.
const EXECUTABLE: u32 = 0o111;
/// The columns of the owner and the group in a long listing.
const OWNER_COLUMNS: [usize; 2] = [2, 3];

/// A line of a listing.
struct Item {
    /// The name as it is shown.
    name: Vec<u8>,
    path: Vec<u8>,
    attributes: Attributes,
    /// The names of its owner and group, if requested and known.
    owner: OwnerNames,
    /// Target of a symbolic link, if requested.
    target: Option<Vec<u8>>,
}

/// The format of a listing.
struct ListingFormat<'a> {
    flags: &'a LsFlags,
    quoting: Quoting,
    color: bool,
    zone: TimeZone,
    now_ns: i64,
    /// Something was printed already.
    begun: bool,
    headed: bool,
}

/// A directory to list.
struct Directory {
    operand: Operand,
    /// Its listing, if that is in flight.
    listing: Option<Listing>,
}

/// Runs `xdfs ls` and returns the exit code.
pub(crate) fn ls(context: &Context, flags: &LsFlags) -> u8 {
    let mut command = PathCommand::new(context, "ls", &flags.common);
    let urls = command.expanded(&flags.urls);
    let mut format = ListingFormat {
        flags,
        quoting: command.quoting(flags.zero),
        color: match flags.color {
            ColorFlag::Auto => std::io::stdout().is_terminal() && wants_color(),
            ColorFlag::Always => true,
            ColorFlag::Never => false,
        },
        zone: TimeZone::system(),
        now_ns: time::now(),
        begun: false,
        headed: urls.len() > 1 || flags.urls.len() > 1 || flags.recursive,
    };
    // Other entries come before directories, together.
    let mut directories = Vec::new();
    let mut items: Vec<(String, Item)> = Vec::new();
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let follow = !flags.is_long() && !flags.directory;
        // In the round trip of the lookup, since most operands are directories. Listings that wait
        // keep the slots of the session from other calls.
        let is_ahead = !flags.directory && directories.len() < LISTINGS_AHEAD;
        let listing = is_ahead.then(|| client.begin_listing(&operand.path));
        let attributes = match attributes_of(&client, &operand.path, follow) {
            // A dangling link exists too.
            Err(fault) if follow && fault.code == Code::NotFound => {
                attributes_of(&client, &operand.path, false)?
            }
            other => other?,
        };
        if attributes.kind == FileKind::Directory && !flags.directory {
            directories.push(Directory {
                operand: operand.clone(),
                listing,
            });
            return Ok(());
        }
        let mut found = [Item {
            name: operand.path.clone(),
            path: operand.path.clone(),
            attributes,
            owner: OwnerNames::default(),
            target: None,
        }];
        format.complete(command, &client, &operand.path, &mut found);
        items.extend(found.map(|item| (operand.text.clone(), item)));
        Ok(())
    });
    items.sort_by(|(_, a), (_, b)| format.order(a, b));
    if command.is_json() {
        for (operand, item) in &items {
            write_item(&mut command, operand, item);
        }
    } else {
        let items: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
        format.begun |= !items.is_empty();
        format.lines(&mut command, &items);
    }
    for directory in directories {
        list(&mut command, &mut format, directory);
    }
    command.finish()
}

fn write_item(command: &mut PathCommand, operand: &str, item: &Item) {
    let target = item.target.as_deref();
    command.write_record(&Record::entry(
        operand,
        &item.path,
        &item.attributes,
        &item.owner,
        target,
    ));
}

fn read_link(path: &[u8]) -> Call {
    Call::ReadLink {
        path: path.to_vec(),
    }
}

fn link_target(answer: Result<Answer, Fault>, path: &[u8]) -> Result<Vec<u8>, Fault> {
    match answer? {
        Answer::Target(target) => Ok(target),
        _ => Err(unexpected_answer("read the symbolic link", path)),
    }
}

/// Lists a directory, and those in it if requested. Reports faults.
fn list(
    command: &mut PathCommand,
    format: &mut ListingFormat<'_>,
    Directory { operand, listing }: Directory,
) {
    let client = match command.client(&operand) {
        Ok(client) => client,
        Err(fault) => return command.fault(Some(&operand.text), &fault),
    };
    // Pending directories, the next one last, with their listings once requested.
    let mut later = vec![(operand.path.clone(), listing)];
    loop {
        let ahead = later.len().saturating_sub(LISTINGS_AHEAD);
        for (path, pending) in &mut later[ahead..] {
            pending.get_or_insert_with(|| client.begin_listing(path));
        }
        let Some((path, Some(pending))) = later.pop() else {
            return;
        };
        if command.is_over() {
            return;
        }
        let mut items = Vec::new();
        let outcome = client.finish_listing(pending, &mut |Entry { name, attributes }| {
            if format.flags.all || !name.starts_with(b".") {
                items.push(Item {
                    path: join(&path, &name),
                    name,
                    attributes,
                    owner: OwnerNames::default(),
                    target: None,
                });
            }
        });
        if let Err(fault) = outcome {
            command.fault(Some(&operand.text), &fault);
            if items.is_empty() {
                continue;
            }
        }
        items.sort_by(|a, b| format.order(a, b));
        format.complete(command, &client, &path, &mut items);
        if format.flags.recursive {
            let directories = items.iter().rev().filter(|item| is_directory(item));
            later.extend(directories.map(|item| (item.path.clone(), None)));
        }
        if command.is_json() {
            items
                .iter()
                .for_each(|item| write_item(command, &operand.text, item));
        } else {
            format.heading(command, &path);
            format.lines(command, &items);
        }
    }
}

fn is_directory(item: &Item) -> bool {
    item.attributes.kind == FileKind::Directory
}

/// Reads the targets of symbolic links, without those that are gone.
fn read_links(client: &Client, items: &mut [Item]) {
    let mut calls = InFlight::new();
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate() {
        if item.attributes.kind == FileKind::Symlink {
            found.extend(calls.push(at, client.start_call(read_link(&item.path))));
        }
    }
    while let Some(answer) = calls.pop() {
        found.push(answer);
    }
    for (at, answer) in found {
        items[at].target = link_target(answer, &items[at].path).ok();
    }
}

impl ListingFormat<'_> {
    /// Adds what attributes don't have, if it is shown: the names of owners and groups, and the
    /// targets of links. The items are in the directory with this path, or the path itself.
    fn complete(&self, command: &PathCommand, client: &Client, path: &[u8], items: &mut [Item]) {
        if !self.flags.is_long() && !command.is_json() {
            return;
        }
        let attributes = items.iter().map(|item| &item.attributes);
        let is_named = !self.flags.numeric;
        let names = is_named.then(|| client.account_names(path, attributes));
        read_links(client, items);
        if let Some(names) = names {
            let names = names.wait();
            for item in items {
                item.owner = names.of(&item.attributes);
            }
        }
    }

    fn order(&self, a: &Item, b: &Item) -> std::cmp::Ordering {
        let key = |item: &Item| {
            let number = match (self.flags.by_time, self.flags.by_size) {
                (true, _) => i128::from(item.attributes.mtime_ns),
                (_, true) => i128::from(item.attributes.size),
                _ => 0,
            };
            Reverse(number)
        };
        let order = key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name));
        if self.flags.reverse {
            order.reverse()
        } else {
            order
        }
    }

    /// Prints the heading of a directory.
    fn heading(&mut self, command: &mut PathCommand, path: &[u8]) {
        if self.headed {
            let gap = if self.begun { "\n" } else { "" };
            let name = self.quoting.write(path);
            command.print(gap.as_bytes());
            command.print(&name);
            command.print(b":\n");
        }
        self.begun = true;
    }

    fn lines(&self, command: &mut PathCommand, items: &[Item]) {
        let names: Vec<Vec<u8>> = items.iter().map(|item| self.name(item)).collect();
        let end: &[u8] = if self.flags.zero { b"\0" } else { b"\n" };
        let columns = if self.flags.is_long() {
            let rows: Vec<Vec<String>> = items.iter().map(|item| self.row(item)).collect();
            let is_number = |cell: &str| cell.bytes().all(|b| b.is_ascii_digit());
            align(&rows, |column, cell| {
                column == 0 || OWNER_COLUMNS.contains(&column) && !is_number(cell)
            })
        } else {
            Vec::new()
        };
        for (at, name) in names.iter().enumerate() {
            if let Some(columns) = columns.get(at) {
                command.print(columns.as_bytes());
                command.print(b" ");
            }
            command.print(name);
            command.print(end);
        }
    }

    fn name(&self, item: &Item) -> Vec<u8> {
        let mut text = self.quoting.write(&item.name);
        let executable = item.attributes.mode & EXECUTABLE != 0;
        if self.color
            && let Some(code) = color(item.attributes.kind, executable)
        {
            text = [code, &text, b"\x1b[0m"].concat();
        }
        if self.flags.classify {
            let is_link = item.attributes.kind == FileKind::Symlink;
            // With its target, a link is recognisable.
            if !(is_link && self.flags.is_long()) {
                text.extend(mark(item.attributes.kind, executable));
            }
        }
        if self.flags.is_long()
            && let Some(target) = &item.target
        {
            text.extend_from_slice(b" -> ");
            text.extend(self.quoting.write(target));
        }
        text
    }

    /// The columns before the name in a long listing.
    fn row(&self, item: &Item) -> Vec<String> {
        let (a, owner) = (&item.attributes, &item.owner);
        let shown =
            |name: Option<&str>, number: u32| name.map_or_else(|| number.to_string(), shown_name);
        vec![
            mode_text(a.kind, a.mode),
            a.links.to_string(),
            shown(owner.user.as_deref(), a.uid),
            shown(owner.group.as_deref(), a.gid),
            if self.flags.human_readable {
                human(a.size)
            } else {
                a.size.to_string()
            },
            time::short(a.mtime_ns, self.now_ns, &self.zone),
        ]
    }
}

/// The control sequence that begins the colour of a kind.
fn color(kind: FileKind, executable: bool) -> Option<&'static [u8]> {
    match kind {
        FileKind::Directory => Some(b"\x1b[1;34m"),
        FileKind::Symlink => Some(b"\x1b[1;36m"),
        FileKind::File if executable => Some(b"\x1b[1;32m"),
        FileKind::File | FileKind::Other => None,
        FileKind::Fifo | FileKind::Socket | FileKind::BlockDevice | FileKind::CharacterDevice => {
            Some(b"\x1b[33m")
        }
    }
}

/// The mark of a kind, as by `ls -F`.
fn mark(kind: FileKind, executable: bool) -> Option<u8> {
    match kind {
        FileKind::Directory => Some(b'/'),
        FileKind::Symlink => Some(b'@'),
        FileKind::Fifo => Some(b'|'),
        FileKind::Socket => Some(b'='),
        FileKind::File if executable => Some(b'*'),
        _ => None,
    }
}

/// Runs `xdfs stat` and returns the exit code.
pub(crate) fn stat(context: &Context, flags: &StatFlags) -> u8 {
    let mut command = PathCommand::new(context, "stat", &flags.common);
    let quoting = command.quoting(false);
    let zone = TimeZone::system();
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let attributes = attributes_of(&client, &operand.path, flags.dereference)?;
        let is_named = flags
            .format
            .as_ref()
            .is_none_or(StatFormat::has_owner_names);
        let names = is_named.then(|| client.account_names(&operand.path, [&attributes]));
        let target = match attributes.kind {
            FileKind::Symlink => {
                let answer = client.call(read_link(&operand.path));
                Some(link_target(answer, &operand.path)?)
            }
            _ => None,
        };
        let owner = names.map(|names| names.wait().of(&attributes));
        let owner = owner.unwrap_or_default();
        if command.is_json() {
            let target = target.as_deref();
            command.write_record(&Record::entry(
                &operand.text,
                &operand.path,
                &attributes,
                &owner,
                target,
            ));
            return Ok(());
        }
        let name = quoting.text(&operand.path);
        let arrow = target.map(|target| format!("{name} -> {}", quoting.text(&target)));
        let full_name = arrow.as_deref().unwrap_or(&name);
        let text = match &flags.format {
            Some(format) => format.line([&name, full_name], &attributes, &owner, &zone),
            None => description(full_name, &attributes, &owner, &zone),
        };
        command.print(text.as_bytes());
        Ok(())
    });
    command.finish()
}
