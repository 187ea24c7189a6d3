//! Packs of small files: how one is made of a tree, and carried out.

use xdfs_proto::pack::{
    Content as Packed, Entry, Failures, Metadata, PackReader, PackRequest, PackWriter,
};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::PackOptions;

use super::{Content, SimStore, no_space};

fn join(root: &[u8], name: &[u8]) -> Vec<u8> {
    [root, b"/", name].concat()
}

pub(super) fn read(
    store: &SimStore,
    root: &[u8],
    request: &PackRequest,
    pack: &mut PackWriter,
) -> Result<(), Fault> {
    store.fails(|habits| habits.failing_opens, "open failed", "read")?;
    for name in &request.names {
        store.world.act(21);
        let failed = store.fails(|habits| habits.failing_reads, "read failed", "read");
        let bytes = failed.and_then(|()| {
            let fault = || Fault::new(Code::NotFound, "read", "no such file").path(name);
            store.file(&join(root, name)).ok_or_else(fault)
        });
        let content = match &bytes {
            Ok(bytes) if bytes.len() > request.file_bytes_max as usize => {
                Packed::Large(bytes.len() as u64)
            }
            Ok(bytes) => Packed::File(bytes),
            Err(fault) => Packed::Failed(fault.clone()),
        };
        let entry = Entry {
            path: name,
            metadata: Metadata::default(),
            content,
        };
        if !pack.entry(&entry) {
            break;
        }
    }
    Ok(())
}

pub(super) fn write(
    store: &SimStore,
    root: &[u8],
    how: PackOptions,
    pack: &[u8],
) -> Result<Failures, Fault> {
    const WRITE: &str = "write";
    store.fails(|habits| habits.failing_opens, "open failed", WRITE)?;
    let limits = Limits::default();
    let mut failures = Failures::default();
    for (number, entry) in (0..).zip(PackReader::new(pack, &limits)) {
        let entry = entry.map_err(|error| {
            let cause = format!("the pack can't be decoded: {error:?}");
            Fault::new(Code::MalformedFrame, WRITE, cause).path(root)
        })?;
        if let Err(fault) = write_entry(store, root, how, &entry) {
            failures.push(number, fault.path(entry.path));
        }
    }
    Ok(failures)
}

fn write_entry(
    store: &SimStore,
    root: &[u8],
    how: PackOptions,
    entry: &Entry<'_>,
) -> Result<(), Fault> {
    const WRITE: &str = "write";
    let bytes = match &entry.content {
        Packed::File(bytes) => *bytes,
        Packed::Failed(fault) => return Err(fault.clone()),
        _ => return Err(Fault::new(Code::Unsupported, WRITE, "only files are kept")),
    };
    store.fails(|habits| habits.failing_writes, "write failed", WRITE)?;
    store.fails(|habits| habits.failing_syncs, "sync failed", WRITE)?;
    store.world.act(22);
    let path = join(root, entry.path);
    let mut disk = store.disk();
    if !disk.has_room(bytes.len() as u64) {
        store.world.count("no space");
        return Err(no_space(WRITE));
    }
    if disk.tree.get(&path).is_some() && !how.overwrite {
        return Err(Fault::new(Code::AlreadyExists, WRITE, "it exists"));
    }
    let durable = if how.relaxed {
        Vec::new()
    } else {
        bytes.to_vec()
    };
    let content = Content {
        bytes: bytes.to_vec(),
        durable,
    };
    disk.tree.put(&path, content);
    Ok(())
}
