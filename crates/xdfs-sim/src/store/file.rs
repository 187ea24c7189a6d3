//! Files that are worked on in place.

use xdfs_proto::Fault;
use xdfs_proto::file::FileIdentity;
use xdfs_proto::path::{Attributes, FileKind};
use xdfs_store::{File, FileRequest, OpenedFile};

use super::tree::attributes;
use super::{SimStore, no_space};
use crate::world::Held;

pub(super) fn open(store: &SimStore, request: &FileRequest) -> Result<OpenedFile, Fault> {
    store.fails(|habits| habits.failing_opens, "open failed", "open")?;
    store.world.act(17);
    let (number, created) = store.disk().tree.open(&request.path, &request.flags)?;
    let file = SimFile {
        store: store.clone(),
        number,
        _held: store.world.hold(),
    };
    let identity = FileIdentity {
        device: 1,
        inode: number,
        born_ns: 0,
    };
    let attributes = file.attributes()?;
    Ok(OpenedFile {
        file: Box::new(file),
        identity,
        attributes,
        created,
    })
}

#[derive(Debug)]
struct SimFile {
    store: SimStore,
    number: u64,
    _held: Held,
}

impl SimFile {
    /// Writes; when that fails, part of it may be written.
    fn write(&self, offset: Option<u64>, bytes: &[u8]) -> Result<u64, Fault> {
        let fails = self
            .store
            .fails(|habits| habits.failing_writes, "write failed", "");
        self.store.world.act(18);
        let mut disk = self.store.disk();
        let length = disk.tree.content(self.number).bytes.len() as u64;
        let offset = offset.unwrap_or(length);
        let grown = (offset + bytes.len() as u64).saturating_sub(length);
        let written = match (&fails, disk.has_room(grown)) {
            (Ok(()), true) => bytes.len(),
            _ => self
                .store
                .world
                .choose(|random| random.below(bytes.len() as u64)) as usize,
        };
        let has_room = disk.has_room(grown);
        disk.tree
            .content(self.number)
            .write(offset, &bytes[..written]);
        fails?;
        if !has_room {
            self.store.world.count("no space");
            return Err(no_space(""));
        }
        Ok(offset)
    }
}

impl File for SimFile {
    fn is_pipe(&self) -> bool {
        false
    }

    fn attributes(&self) -> Result<Attributes, Fault> {
        let size = self.store.disk().tree.content(self.number).bytes.len() as u64;
        Ok(attributes(FileKind::File, size))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.store
            .fails(|habits| habits.failing_reads, "read failed", "")?;
        let mut disk = self.store.disk();
        let bytes = disk.tree.content(self.number).read(offset, buf.len());
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.write(Some(offset), bytes).map(drop)
    }

    fn append(&self, bytes: &[u8]) -> Result<u64, Fault> {
        self.write(None, bytes)
    }

    fn sync(&self, _: bool) -> Result<(), Fault> {
        let fails = self
            .store
            .fails(|habits| habits.failing_syncs, "sync failed", "");
        self.store.world.act(19);
        let mut disk = self.store.disk();
        let content = disk.tree.content(self.number);
        match &fails {
            Ok(()) => content.sync(),
            // The system may have dropped what it could not write.
            Err(_) => content.bytes.clone_from(&content.durable),
        }
        fails
    }

    fn set_length(&self, length: u64) -> Result<(), Fault> {
        self.store
            .fails(|habits| habits.failing_writes, "write failed", "")?;
        self.store.world.act(20);
        self.store
            .disk()
            .tree
            .content(self.number)
            .bytes
            .resize(length as usize, 0);
        Ok(())
    }

    fn read_pipe(&self, _: &mut [u8]) -> Result<Option<usize>, Fault> {
        Ok(Some(0))
    }

    fn write_pipe(&self, _: &[u8]) -> Result<Option<usize>, Fault> {
        Ok(None)
    }
}
