//! The bodies of path calls and of their answers, after the call that they belong to.
//!
//! ```text
//!  XPATHM:  slot u16, sequence u32, operation u8, options u8, fields of the operation
//!  ANSWER:  slot u16, sequence u32, part u32, content u8, fields of the content
//! ```
//!
//! [`Call::check`] and [`Answer::check`] contain the rules of calls and answers beyond their
//! layout: decoders apply them to input, and machines to output.

use super::{Answer, Call, Entry, PartialFile, account};
use crate::delta::{Seed, Signatures};
use crate::fault::Fault;
use crate::file::{FileAnswer, FileCall};
use crate::group::Group;
use crate::limits::Limits;
use crate::relay::{self, ParcelList, ParcelStatus, RelayCall};
use crate::stripes::{self, Stripes, StripesCall};
use crate::third_party::{self, CAPABILITY_BYTES_MAX, CopyStatus, ThirdPartyCall, TreeStatus};
use crate::wire::{
    DecodeError, FAULT_BYTES_MAX, Reader, Writer, check_mode, check_most, check_path, flag, present,
};

/// Size of an entry without its name.
const ENTRY_BYTES: usize = ATTRIBUTES_BYTES + 2;
/// Size of attributes.
const ATTRIBUTES_BYTES: usize = 1 + 2 * 8 + 2 + 2 * 4 + 6 * 8;
/// Size of an ANSWER with entries, without the cursor and the entries: slot, sequence, part,
/// content, length of the cursor, count.
const ENTRIES_FIXED_BYTES: usize = 2 + 4 + 4 + 1 + 2 + 4;

/// Numbers of the operations.
mod operation {
    pub(super) const STAT: u8 = 0x01;
    pub(super) const LIST: u8 = 0x02;
    pub(super) const MAKE_DIRECTORY: u8 = 0x03;
    pub(super) const REMOVE_FILE: u8 = 0x04;
    pub(super) const REMOVE_DIRECTORY: u8 = 0x05;
    pub(super) const REMOVE_TREE: u8 = 0x06;
    pub(super) const RENAME: u8 = 0x07;
    pub(super) const COPY: u8 = 0x08;
    pub(super) const LINK: u8 = 0x09;
    pub(super) const SYMLINK: u8 = 0x0a;
    pub(super) const READ_LINK: u8 = 0x0b;
    pub(super) const SET_MODE: u8 = 0x0c;
    pub(super) const SET_TIMES: u8 = 0x0d;
    pub(super) const SET_OWNER: u8 = 0x0e;
    pub(super) const TRUNCATE: u8 = 0x0f;
    pub(super) const SPACE: u8 = 0x10;
    pub(super) const CHECKSUM: u8 = 0x11;
    pub(super) const SYNC: u8 = 0x12;
    pub(super) const SIGNATURES: u8 = 0x13;
    pub(super) const SEED: u8 = 0x14;
    pub(super) const LIST_PARTIAL: u8 = 0x15;
    pub(super) const REMOVE_PARTIAL: u8 = 0x16;
    pub(super) const LOOK_UP: u8 = 0x17;
    pub(super) const SETTABLE_OWNERS: u8 = 0x18;
    pub(super) const GROUP: u8 = 0x30;
}

/// Numbers of the contents of an answer.
mod content {
    pub(super) const FAULT: u8 = 0x00;
    pub(super) const DONE: u8 = 0x01;
    pub(super) const ATTRIBUTES: u8 = 0x02;
    pub(super) const ENTRIES: u8 = 0x03;
    pub(super) const TARGET: u8 = 0x04;
    pub(super) const SPACE: u8 = 0x05;
    pub(super) const DIGEST: u8 = 0x06;
    pub(super) const REMOVED: u8 = 0x07;
    pub(super) const COPIED: u8 = 0x08;
    pub(super) const SIGNATURES: u8 = 0x09;
    pub(super) const PARTIAL: u8 = 0x0a;
    pub(super) const ACCOUNTS: u8 = 0x0b;
    pub(super) const CAPABILITY: u8 = 0x0c;
    pub(super) const COPY_STATUS: u8 = 0x0d;
    pub(super) const TREE_STATUS: u8 = 0x0e;
    pub(super) const PARCEL_STATUS: u8 = 0x0f;
    pub(super) const PARCELS: u8 = 0x10;
    pub(super) const GROUP: u8 = 0x30;
    pub(super) const STRIPES: u8 = 0x31;
}

/// Stat, SetTimes, SetOwner: follow a symbolic link.
const FOLLOW: u8 = 1 << 0;
/// Rename, Copy, Seed: replace an existing entry.
const OVERWRITE: u8 = 1 << 0;
/// Seed: the source is sparse.
const SPARSE: u8 = 1 << 1;
/// MakeDirectory: create missing parents.
const PARENTS: u8 = 1 << 0;
/// MakeDirectory: permission bits are given. Checksum: the length is given. SetTimes, SetOwner: the
/// first of the two values is given. RemovePartial: the time is given.
const FIRST: u8 = 1 << 1;
/// SetTimes, SetOwner: the second of the two values is given.
const SECOND: u8 = 1 << 2;

/// Size of an unfinished transfer without its name.
const PARTIAL_BYTES: usize = 1 + 4 * 8 + 2;

impl PartialFile {
    /// Size in an answer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        PARTIAL_BYTES + self.name.len()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(u8::from(self.length.is_some()));
        w.u64(self.arrived);
        w.u64(self.length.unwrap_or(0));
        w.u64(self.allocated);
        w.i64(self.mtime_ns);
        w.path(&self.name);
    }

    fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let options = r.u8("options of an entry")?;
        if options > 1 {
            return Err(DecodeError::Invalid("options of an entry"));
        }
        Ok(Self {
            arrived: r.u64("bytes")?,
            length: present(options, 1, r.u64("length")?, "length")?,
            allocated: r.u64("bytes")?,
            mtime_ns: r.i64("time")?,
            name: r.path(limits.path_bytes_max, "name of an entry")?,
        })
    }
}

fn check_name(name: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    const FIELD: &str = "name of an entry";
    check_path(name, limits.path_bytes_max, FIELD)?;
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
        return Err(DecodeError::Invalid(FIELD));
    }
    Ok(())
}

impl Call {
    /// The defined option bits of an operation; `None` for an unknown operation.
    pub(crate) fn options_defined(number: u8) -> Option<u8> {
        match number {
            operation::STAT | operation::RENAME | operation::COPY => Some(FOLLOW),
            operation::SEED => Some(OVERWRITE | SPARSE),
            operation::MAKE_DIRECTORY => Some(PARENTS | FIRST),
            operation::SET_TIMES | operation::SET_OWNER => Some(FOLLOW | FIRST | SECOND),
            operation::CHECKSUM | operation::REMOVE_PARTIAL => Some(FIRST),
            operation::STAT..=operation::SIGNATURES
            | operation::LIST_PARTIAL
            | operation::LOOK_UP
            | operation::SETTABLE_OWNERS
            | operation::GROUP => Some(0),
            number => ThirdPartyCall::options_defined(number)
                .or_else(|| RelayCall::options_defined(number))
                .or_else(|| StripesCall::options_defined(number))
                .or_else(|| FileCall::options_defined(number)),
        }
    }

    /// Checks the rules of a call: paths within [`Limits::path_bytes_max`] and without a zero byte,
    /// permission bits of at most 0o7777, at least one entry requested, a digest other than none, a
    /// range that ends before 2^64, and the rules of accounts and of the types in [`crate::delta`].
    ///
    /// # Errors
    /// The violated rule, as a decoder would report it.
    pub fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        check_path(self.path(), limits.path_bytes_max, "path")?;
        match self {
            Self::File(call) => call.check(limits)?,
            Self::ThirdParty(call) => call.check(limits)?,
            Self::Relay(call) => call.check(limits.path_bytes_max)?,
            Self::Stripes(call) => call.check(limits)?,
            Self::List {
                cursor,
                entries_max,
                ..
            } => {
                check_most("cursor", cursor.len(), limits.path_bytes_max)?;
                if *entries_max == 0 {
                    return Err(DecodeError::Invalid("number of entries"));
                }
            }
            Self::ListPartial { after, .. } if !after.is_empty() => check_name(after, limits)?,
            Self::LookUp { accounts, .. } => account::check_asked(accounts)?,
            Self::MakeDirectory { mode, .. } => check_mode(mode.unwrap_or(0))?,
            Self::SetMode { mode, .. } => check_mode(*mode)?,
            Self::Rename { to, .. } | Self::Copy { to, .. } => {
                check_path(to, limits.path_bytes_max, "path")?
            }
            Self::Link { existing, .. } => check_path(existing, limits.path_bytes_max, "path")?,
            Self::Symlink { target, .. } => {
                check_path(target, limits.path_bytes_max, "target of a link")?
            }
            Self::Signatures {
                block_bytes,
                first,
                count,
                ..
            } => Signatures::check_call(*block_bytes, *first, *count)?,
            Self::Seed(seed) => {
                check_path(&seed.to, limits.path_bytes_max, "path")?;
                seed.check()?;
            }
            Self::Checksum { offset, length, .. }
                if offset.checked_add(length.unwrap_or(0)).is_none() =>
            {
                return Err(DecodeError::Invalid("length"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends the operation, its options and its fields.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::File(call) => return call.encode(w),
            Self::ThirdParty(call) => return call.encode(w),
            Self::Relay(call) => return call.encode(w),
            Self::Stripes(call) => return call.encode(w),
            _ => {}
        }
        let (number, options) = self.operation_and_options();
        w.u8(number);
        w.u8(options);
        match self {
            Self::File(_) | Self::ThirdParty(_) | Self::Relay(_) | Self::Stripes(_) => {}
            Self::Stat { path, .. }
            | Self::RemoveFile { path }
            | Self::RemoveDirectory { path }
            | Self::RemoveTree { path }
            | Self::ReadLink { path }
            | Self::Space { path }
            | Self::Sync { path }
            | Self::SettableOwners { path }
            | Self::Group { path } => w.path(path),
            Self::List {
                path,
                cursor,
                entries_max,
            } => {
                w.u32(*entries_max);
                w.path(path);
                w.bytes(cursor, usize::from(u16::MAX));
            }
            Self::MakeDirectory { path, mode, .. } => {
                w.mode(mode.unwrap_or(0));
                w.path(path);
            }
            Self::Rename { from, to, .. } | Self::Copy { from, to, .. } => {
                w.path(from);
                w.path(to);
            }
            Self::Link { existing, path } => {
                w.path(existing);
                w.path(path);
            }
            Self::Symlink { target, path } => {
                w.path(target);
                w.path(path);
            }
            Self::SetMode { path, mode } => {
                w.mode(*mode);
                w.path(path);
            }
            Self::SetTimes {
                path,
                atime_ns,
                mtime_ns,
                ..
            } => {
                w.i64(atime_ns.unwrap_or(0));
                w.i64(mtime_ns.unwrap_or(0));
                w.path(path);
            }
            Self::SetOwner { path, uid, gid, .. } => {
                w.u32(uid.unwrap_or(0));
                w.u32(gid.unwrap_or(0));
                w.path(path);
            }
            Self::Truncate { path, length } => {
                w.u64(*length);
                w.path(path);
            }
            Self::Checksum {
                path,
                offset,
                length,
                kind,
            } => {
                w.u64(*offset);
                w.u64(length.unwrap_or(0));
                w.checksum_kind(*kind);
                w.path(path);
            }
            Self::Signatures {
                path,
                digest,
                block_bytes,
                first,
                count,
            } => {
                w.digest_kind(*digest);
                w.u32(*block_bytes);
                w.u64(*first);
                w.u32(*count);
                w.path(path);
            }
            Self::Seed(seed) => seed.encode(w),
            Self::ListPartial { path, after } => {
                w.path(path);
                w.path(after);
            }
            Self::RemovePartial {
                path,
                unchanged_since_ns,
            } => {
                w.i64(unchanged_since_ns.unwrap_or(0));
                w.path(path);
            }
            Self::LookUp { path, accounts } => {
                w.path(path);
                account::encode_asked(accounts, w);
            }
        }
    }

    fn operation_and_options(&self) -> (u8, u8) {
        match self {
            // They encode themselves.
            Self::File(_) | Self::ThirdParty(_) | Self::Relay(_) | Self::Stripes(_) => (0, 0),
            Self::Stat { follow, .. } => (operation::STAT, flag(*follow, FOLLOW)),
            Self::List { .. } => (operation::LIST, 0),
            Self::MakeDirectory { mode, parents, .. } => (
                operation::MAKE_DIRECTORY,
                flag(*parents, PARENTS) | flag(mode.is_some(), FIRST),
            ),
            Self::RemoveFile { .. } => (operation::REMOVE_FILE, 0),
            Self::RemoveDirectory { .. } => (operation::REMOVE_DIRECTORY, 0),
            Self::RemoveTree { .. } => (operation::REMOVE_TREE, 0),
            Self::Rename { overwrite, .. } => (operation::RENAME, flag(*overwrite, OVERWRITE)),
            Self::Copy { overwrite, .. } => (operation::COPY, flag(*overwrite, OVERWRITE)),
            Self::Link { .. } => (operation::LINK, 0),
            Self::Symlink { .. } => (operation::SYMLINK, 0),
            Self::ReadLink { .. } => (operation::READ_LINK, 0),
            Self::SetMode { .. } => (operation::SET_MODE, 0),
            Self::SetTimes {
                atime_ns,
                mtime_ns,
                follow,
                ..
            } => (
                operation::SET_TIMES,
                flag(*follow, FOLLOW)
                    | flag(atime_ns.is_some(), FIRST)
                    | flag(mtime_ns.is_some(), SECOND),
            ),
            Self::SetOwner {
                uid, gid, follow, ..
            } => (
                operation::SET_OWNER,
                flag(*follow, FOLLOW) | flag(uid.is_some(), FIRST) | flag(gid.is_some(), SECOND),
            ),
            Self::Truncate { .. } => (operation::TRUNCATE, 0),
            Self::Space { .. } => (operation::SPACE, 0),
            Self::Sync { .. } => (operation::SYNC, 0),
            Self::Checksum { length, .. } => (operation::CHECKSUM, flag(length.is_some(), FIRST)),
            Self::Signatures { .. } => (operation::SIGNATURES, 0),
            Self::Seed(seed) => (
                operation::SEED,
                flag(seed.overwrite, OVERWRITE) | flag(seed.sparse, SPARSE),
            ),
            Self::ListPartial { .. } => (operation::LIST_PARTIAL, 0),
            Self::RemovePartial {
                unchanged_since_ns, ..
            } => (
                operation::REMOVE_PARTIAL,
                flag(unchanged_since_ns.is_some(), FIRST),
            ),
            Self::LookUp { .. } => (operation::LOOK_UP, 0),
            Self::SettableOwners { .. } => (operation::SETTABLE_OWNERS, 0),
            Self::Group { .. } => (operation::GROUP, 0),
        }
    }

    /// Decodes what follows the number of an operation with the `defined` options.
    pub(crate) fn decode(
        number: u8,
        defined: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let options = r.u8("options of a call")?;
        if options & !defined != 0 {
            return Err(DecodeError::Invalid("options of a call"));
        }
        let call = Self::decode_operation(number, options, r, limits)?;
        call.check(limits)?;
        Ok(call)
    }

    fn decode_operation(
        number: u8,
        options: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let path = |r: &mut Reader<'_>| r.path(limits.path_bytes_max, "path");
        let follow = options & FOLLOW != 0;
        let overwrite = options & OVERWRITE != 0;
        Ok(match number {
            operation::STAT => Self::Stat {
                path: path(r)?,
                follow,
            },
            operation::LIST => Self::List {
                entries_max: r.u32("number of entries")?,
                path: path(r)?,
                cursor: r.bytes(limits.path_bytes_max, "cursor")?.to_vec(),
            },
            operation::MAKE_DIRECTORY => Self::MakeDirectory {
                mode: present(options, FIRST, r.mode()?, "mode")?,
                path: path(r)?,
                parents: options & PARENTS != 0,
            },
            operation::REMOVE_FILE => Self::RemoveFile { path: path(r)? },
            operation::REMOVE_DIRECTORY => Self::RemoveDirectory { path: path(r)? },
            operation::REMOVE_TREE => Self::RemoveTree { path: path(r)? },
            operation::RENAME => Self::Rename {
                from: path(r)?,
                to: path(r)?,
                overwrite,
            },
            operation::COPY => Self::Copy {
                from: path(r)?,
                to: path(r)?,
                overwrite,
            },
            operation::LINK => Self::Link {
                existing: path(r)?,
                path: path(r)?,
            },
            operation::SYMLINK => Self::Symlink {
                target: r.path(limits.path_bytes_max, "target of a link")?,
                path: path(r)?,
            },
            operation::READ_LINK => Self::ReadLink { path: path(r)? },
            operation::SET_MODE => Self::SetMode {
                mode: r.mode()?,
                path: path(r)?,
            },
            operation::SET_TIMES => Self::SetTimes {
                atime_ns: present(options, FIRST, r.i64("time of the last read")?, "time")?,
                mtime_ns: present(options, SECOND, r.i64("time")?, "time")?,
                path: path(r)?,
                follow,
            },
            operation::SET_OWNER => Self::SetOwner {
                uid: present(options, FIRST, r.u32("owner")?, "owner")?,
                gid: present(options, SECOND, r.u32("group")?, "group")?,
                path: path(r)?,
                follow,
            },
            operation::TRUNCATE => Self::Truncate {
                length: r.u64("length")?,
                path: path(r)?,
            },
            operation::SPACE => Self::Space { path: path(r)? },
            operation::SYNC => Self::Sync { path: path(r)? },
            operation::CHECKSUM => Self::Checksum {
                offset: r.u64("offset")?,
                length: present(options, FIRST, r.u64("length")?, "length")?,
                kind: r.checksum_kind()?,
                path: path(r)?,
            },
            operation::SIGNATURES => Self::Signatures {
                digest: r.digest_kind()?,
                block_bytes: r.u32("block size")?,
                first: r.u64("number of a block")?,
                count: r.u32("number of blocks")?,
                path: path(r)?,
            },
            operation::SEED => {
                let mut seed = Seed::decode(r, limits)?;
                seed.overwrite = overwrite;
                seed.sparse = options & SPARSE != 0;
                Self::Seed(Box::new(seed))
            }
            operation::LIST_PARTIAL => Self::ListPartial {
                path: path(r)?,
                after: r.path(limits.path_bytes_max, "name of an entry")?,
            },
            operation::REMOVE_PARTIAL => Self::RemovePartial {
                unchanged_since_ns: present(options, FIRST, r.i64("time")?, "time")?,
                path: path(r)?,
            },
            operation::LOOK_UP => Self::LookUp {
                path: path(r)?,
                accounts: account::decode_asked(r)?,
            },
            operation::SETTABLE_OWNERS => Self::SettableOwners { path: path(r)? },
            operation::GROUP => Self::Group { path: path(r)? },
            third_party::operation::DELEGATE..=third_party::operation::TREE_STATUS => {
                Self::ThirdParty(ThirdPartyCall::decode(number, options, r, limits)?)
            }
            relay::operation::OPEN_PARCEL..=relay::operation::LIST_PARCELS => Self::Relay(
                RelayCall::decode(number, options, r, limits.path_bytes_max)?,
            ),
            stripes::operation::OPEN..=stripes::operation::CLOSE => {
                Self::Stripes(StripesCall::decode(number, options, r, limits)?)
            }
            number => Self::File(FileCall::decode(number, options, r, limits)?),
        })
    }
}

impl Answer {
    /// Checks the rules of an answer: names of a single component, paths within
    /// [`Limits::path_bytes_max`], permission bits of at most 0o7777, a digest other than none, the
    /// rules of accounts, and entries or accounts that fit into [`Limits::control_frame_bytes_max`]
    /// together.
    ///
    /// # Errors
    /// The violated rule, as a decoder would report it.
    pub fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        match self {
            Self::Attributes(attributes) => check_mode(attributes.mode),
            Self::Entries { entries, cursor } => {
                if let Some(cursor) = cursor {
                    check_most("cursor", cursor.len(), limits.path_bytes_max)?;
                    if cursor.is_empty() {
                        return Err(DecodeError::Invalid("cursor"));
                    }
                }
                for entry in entries {
                    check_name(&entry.name, limits)?;
                    check_mode(entry.attributes.mode)?;
                }
                self.check_length(limits)
            }
            Self::Target(target) => check_path(target, limits.path_bytes_max, "target of a link"),
            Self::Signatures(signatures) => signatures.check(),
            Self::Partial { files, more } => {
                for file in files {
                    check_name(&file.name, limits)?;
                }
                if *more && files.is_empty() {
                    return Err(DecodeError::Invalid("count of entries"));
                }
                self.check_length(limits)
            }
            Self::Accounts(accounts) => {
                account::check_found(accounts)?;
                self.check_length(limits)
            }
            Self::Capability(text) => check_most("capability", text.len(), CAPABILITY_BYTES_MAX),
            Self::CopyStatus(status) => status.check(limits),
            Self::ParcelStatus(status) => {
                status.check()?;
                self.check_length(limits)
            }
            Self::Parcels(list) => {
                list.check()?;
                self.check_length(limits)
            }
            Self::TreeStatus(status) => {
                status.check(limits)?;
                self.check_length(limits)
            }
            Self::Group(group) => group.check(),
            Self::Stripes(stripes) => {
                stripes.check()?;
                self.check_length(limits)
            }
            Self::File(answer) => answer.check(),
            _ => Ok(()),
        }
    }

    fn check_length(&self, limits: &Limits) -> Result<(), DecodeError> {
        let (actual, limit) = (self.body_bytes(), limits.control_frame_bytes_max as usize);
        check_most("length of an answer", actual, limit)
    }

    /// Size of the body of its ANSWER; small ones are rounded up to 256.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        match self {
            Self::Entries { entries, cursor } => {
                let entries = entries.iter().map(|e| ENTRY_BYTES + e.name.len());
                let cursor = cursor.as_ref().map_or(0, Vec::len);
                ENTRIES_FIXED_BYTES + cursor + entries.sum::<usize>()
            }
            Self::Target(target) => 256 + target.len(),
            Self::CopyStatus(status) => {
                let fault = status
                    .fault
                    .as_ref()
                    .map_or(0, |_| FAULT_BYTES_MAX as usize);
                256 + status.target.len() + fault
            }
            Self::ParcelStatus(status) => {
                let fault = status
                    .fault
                    .as_ref()
                    .map_or(0, |_| FAULT_BYTES_MAX as usize);
                256 + status.target.len() + fault
            }
            Self::Capability(text) => 256 + text.len(),
            Self::File(answer) => answer.body_bytes(),
            answer => 256 + answer.data_bytes(),
        }
    }

    /// Appends the content of an answer.
    pub(crate) fn encode(answer: &Result<Self, Fault>, w: &mut Writer<'_>) {
        match answer {
            Err(fault) => {
                w.u8(content::FAULT);
                w.fault(fault);
            }
            Ok(Self::Done) => w.u8(content::DONE),
            Ok(Self::Attributes(attributes)) => {
                w.u8(content::ATTRIBUTES);
                w.attributes(attributes);
            }
            Ok(Self::Entries { entries, cursor }) => {
                w.u8(content::ENTRIES);
                let cursor = cursor.as_deref().unwrap_or(&[]);
                w.bytes(cursor, usize::from(u16::MAX));
                w.u32(u32::try_from(entries.len()).unwrap_or(u32::MAX));
                for entry in entries {
                    w.attributes(&entry.attributes);
                    w.path(&entry.name);
                }
            }
            Ok(Self::Target(target)) => {
                w.u8(content::TARGET);
                w.path(target);
            }
            Ok(Self::Space {
                total,
                free,
                available,
                files,
                files_free,
            }) => {
                w.u8(content::SPACE);
                for number in [total, free, available, files, files_free] {
                    w.u64(*number);
                }
            }
            Ok(Self::Digest { value, length }) => {
                w.u8(content::DIGEST);
                w.u64(*length);
                w.checksum(value);
            }
            Ok(Self::Removed { entries }) => {
                w.u8(content::REMOVED);
                w.u64(*entries);
            }
            Ok(Self::Copied { bytes }) => {
                w.u8(content::COPIED);
                w.u64(*bytes);
            }
            Ok(Self::Signatures(signatures)) => {
                w.u8(content::SIGNATURES);
                signatures.encode(w);
            }
            Ok(Self::Partial { files, more }) => {
                w.u8(content::PARTIAL);
                w.u8(u8::from(*more));
                w.u32(u32::try_from(files.len()).unwrap_or(u32::MAX));
                for file in files {
                    file.encode(w);
                }
            }
            Ok(Self::Accounts(accounts)) => {
                w.u8(content::ACCOUNTS);
                account::encode_found(accounts, w);
            }
            Ok(Self::Capability(text)) => {
                w.u8(content::CAPABILITY);
                w.text(text, CAPABILITY_BYTES_MAX);
            }
            Ok(Self::CopyStatus(status)) => {
                w.u8(content::COPY_STATUS);
                status.encode(w);
            }
            Ok(Self::TreeStatus(status)) => {
                w.u8(content::TREE_STATUS);
                status.encode(w);
            }
            Ok(Self::ParcelStatus(status)) => {
                w.u8(content::PARCEL_STATUS);
                status.encode(w);
            }
            Ok(Self::Parcels(list)) => {
                w.u8(content::PARCELS);
                list.encode(w);
            }
            Ok(Self::Group(group)) => {
                w.u8(content::GROUP);
                group.encode(w);
            }
            Ok(Self::Stripes(stripes)) => {
                w.u8(content::STRIPES);
                stripes.encode(w);
            }
            Ok(Self::File(answer)) => answer.encode(w),
        }
    }

    /// Decodes the content of an answer.
    pub(crate) fn decode(
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Result<Self, Fault>, DecodeError> {
        let answer = match r.u8("content of an answer")? {
            content::FAULT => return Ok(Err(r.fault()?)),
            content::DONE => Self::Done,
            content::ATTRIBUTES => Self::Attributes(r.attributes()?),
            content::ENTRIES => {
                let cursor = r.bytes(limits.path_bytes_max, "cursor")?.to_vec();
                let count = r.u32("count of entries")? as usize;
                // The peer chooses the count: reserve no more than the available bytes can hold.
                let mut entries = Vec::with_capacity(count.min(r.remaining() / ENTRY_BYTES));
                for _ in 0..count {
                    let attributes = r.attributes()?;
                    let name = r.path(limits.path_bytes_max, "name of an entry")?;
                    entries.push(Entry { name, attributes });
                }
                let cursor = (!cursor.is_empty()).then_some(cursor);
                Self::Entries { entries, cursor }
            }
            content::TARGET => Self::Target(r.path(limits.path_bytes_max, "target of a link")?),
            content::SPACE => Self::Space {
                total: r.u64("space")?,
                free: r.u64("space")?,
                available: r.u64("space")?,
                files: r.u64("space")?,
                files_free: r.u64("space")?,
            },
            content::DIGEST => Self::Digest {
                length: r.u64("length")?,
                value: r.checksum()?,
            },
            content::REMOVED => Self::Removed {
                entries: r.u64("count of entries")?,
            },
            content::COPIED => Self::Copied {
                bytes: r.u64("bytes")?,
            },
            content::SIGNATURES => Self::Signatures(Signatures::decode(r)?),
            content::PARTIAL => {
                let more = match r.u8("options of an answer")? {
                    0 => false,
                    1 => true,
                    _ => return Err(DecodeError::Invalid("options of an answer")),
                };
                let count = r.u32("count of entries")? as usize;
                let mut files = Vec::with_capacity(count.min(r.remaining() / PARTIAL_BYTES));
                for _ in 0..count {
                    files.push(PartialFile::decode(r, limits)?);
                }
                Self::Partial { files, more }
            }
            content::ACCOUNTS => Self::Accounts(account::decode_found(r)?),
            content::CAPABILITY => Self::Capability(r.text(CAPABILITY_BYTES_MAX, "capability")?),
            content::COPY_STATUS => Self::CopyStatus(Box::new(CopyStatus::decode(r, limits)?)),
            content::TREE_STATUS => Self::TreeStatus(Box::new(TreeStatus::decode(r, limits)?)),
            content::PARCEL_STATUS => Self::ParcelStatus(Box::new(ParcelStatus::decode(r)?)),
            content::PARCELS => Self::Parcels(ParcelList::decode(r)?),
            content::GROUP => Self::Group(Group::decode(r)?),
            content::STRIPES => Self::Stripes(Box::new(Stripes::decode(r, limits)?)),
            number => match FileAnswer::decode(number, r)? {
                Some(answer) => Self::File(answer),
                None => return Err(DecodeError::Invalid("content of an answer")),
            },
        };
        answer.check(limits)?;
        Ok(Ok(answer))
    }
}
