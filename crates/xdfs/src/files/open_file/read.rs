//! Reads: sequential with read-ahead, at offsets, and from pipes.

use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::file::{Extent, FileAnswer, FileCall};
use xdfs_proto::path::{Answer, Call};

use super::super::FileBytes;
use super::super::read_ahead::{BLOCK_BYTES, Block};
use super::{OpenFile, asks_for_retry, unexpected};
use crate::paths::PendingCall;
use crate::retry::is_session_lost;

/// Read requests in flight for one call of the program.
const READS_MAX: usize = 32;

impl OpenFile {
    /// Reads sequentially, with read-ahead.
    pub(in crate::files) fn read_on(&mut self, buf: &mut [u8]) -> Result<usize, Fault> {
        self.check()?;
        if buf.is_empty() {
            return Ok(0);
        }
        if self.is_pipe {
            return self.read_pipe(buf);
        }
        if i64::try_from(self.position).is_err() {
            // No system has files of that length.
            return Ok(0);
        }
        let count = self.ahead.copy(self.position, buf);
        if count > 0 {
            self.position += count as u64;
            return Ok(count);
        }
        let count = if self.ahead.is_sequential(self.position) {
            self.fetch()?;
            self.ahead.copy(self.position, buf)
        } else {
            let most = buf.len().min(BLOCK_BYTES);
            let read = self.read_at(self.position, &mut buf[..most])?;
            self.ahead.jumped(self.position + read as u64);
            read
        };
        self.position += count as u64;
        Ok(count)
    }

    /// Reads sequentially without copying what was read ahead: up to `most` bytes.
    pub(in crate::files) fn read_shared(&mut self, most: usize) -> Result<FileBytes, Fault> {
        self.check()?;
        if most == 0 || !self.is_pipe && i64::try_from(self.position).is_err() {
            return Ok(FileBytes::default());
        }
        if self.is_pipe {
            let block = self.receive_from_pipe(most)?;
            return Ok(FileBytes::of(&block, 0, most));
        }
        let mut shared = self.ahead.share(self.position, most);
        if shared.is_empty() && self.ahead.is_sequential(self.position) {
            self.fetch()?;
            shared = self.ahead.share(self.position, most);
        } else if shared.is_empty() {
            let mut bytes = vec![0; most.min(BLOCK_BYTES)];
            let count = self.read_at(self.position, &mut bytes)?;
            self.ahead.jumped(self.position + count as u64);
            bytes.truncate(count);
            shared = bytes.into();
        }
        self.position += shared.len() as u64;
        Ok(shared)
    }

    /// Receives the block at the position, and requests those after it.
    fn fetch(&mut self) -> Result<(), Fault> {
        loop {
            let position = self.position;
            self.ahead.align(position);
            while let Some(offset) = self.ahead.wanted(position) {
                if self.behind.overlaps(offset, BLOCK_BYTES as u64) {
                    if !self.ahead.is_empty() {
                        break;
                    }
                    self.settle(offset, BLOCK_BYTES as u64)?;
                }
                let call = self.start_read(offset, BLOCK_BYTES);
                self.ahead.push(Block { offset, call });
            }
            let Some(block) = self.ahead.pop() else {
                return Ok(());
            };
            match self.read_answer(block.call) {
                // A pending write further on may extend the file.
                Ok(bytes) if bytes.len() < BLOCK_BYTES && !self.behind.is_empty() => {
                    self.ahead.forget();
                    self.drain()?;
                }
                Ok(bytes) => {
                    self.ahead.add_received(block.offset, bytes);
                    return Ok(());
                }
                Err(fault) if is_session_lost(&fault) => self.recover_and_check(fault)?,
                Err(fault) => {
                    self.ahead.forget();
                    return Err(self.with_path(fault));
                }
            }
        }
    }

    fn start_read(&self, offset: u64, length: usize) -> Result<PendingCall, Fault> {
        // Offsets end there.
        let length = u64::try_from(length)
            .unwrap_or(u64::MAX)
            .min(u64::MAX - offset);
        let call = FileCall::Read {
            handle: self.handle,
            locked: self.is_locked(offset, Some(length.max(1)), false),
            extents: vec![Extent {
                offset,
                length: u32::try_from(length).unwrap_or(u32::MAX),
            }],
        };
        self.caller.start_pending(Call::File(call))
    }

    fn read_answer(&mut self, call: Result<PendingCall, Fault>) -> Result<Arc<Vec<u8>>, Fault> {
        let result = call.and_then(PendingCall::wait);
        match self.note_lock_loss(result)? {
            Answer::File(FileAnswer::Data { bytes, .. }) => Ok(bytes),
            _ => Err(unexpected("read")),
        }
    }

    /// Reads current data, up to the end of the file.
    pub(in crate::files) fn read_at(
        &mut self,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Fault> {
        self.check()?;
        self.settle(offset, buf.len() as u64)?;
        'again: loop {
            let mut filled = 0;
            let mut calls = std::collections::VecDeque::new();
            let mut asked = 0;
            while filled < buf.len() {
                while asked < buf.len() && calls.len() < READS_MAX {
                    let length = (buf.len() - asked).min(BLOCK_BYTES);
                    let Some(at) = offset.checked_add(asked as u64) else {
                        break;
                    };
                    if at == u64::MAX {
                        break;
                    }
                    calls.push_back((length, self.start_read(at, length)));
                    asked += length;
                }
                let Some((length, call)) = calls.pop_front() else {
                    break;
                };
                let bytes = match self.read_answer(call) {
                    Err(fault) if is_session_lost(&fault) => {
                        self.recover_and_check(fault)?;
                        continue 'again;
                    }
                    result => result.map_err(|fault| self.with_path(fault))?,
                };
                let count = bytes.len().min(length);
                buf[filled..filled + count].copy_from_slice(&bytes[..count]);
                filled += count;
                if count < length {
                    break;
                }
            }
            if filled < buf.len() && !self.behind.is_empty() {
                // A pending write further on may extend the file.
                self.drain()?;
                continue 'again;
            }
            return Ok(filled);
        }
    }

    /// Reads several extents in one call.
    pub(in crate::files) fn read_pieces(
        &mut self,
        pieces: &[(u64, u32)],
    ) -> Result<Vec<Vec<u8>>, Fault> {
        self.check()?;
        let mut extents = Vec::with_capacity(pieces.len());
        for &(offset, length) in pieces {
            self.settle(offset, u64::from(length))?;
            extents.push(Extent { offset, length });
        }
        // A pending write further on may extend the file.
        self.drain()?;
        let answer = self.call(&|own| {
            let is_locked = |extent: &Extent| {
                own.is_locked(extent.offset, Some(u64::from(extent.length.max(1))), false)
            };
            FileCall::Read {
                handle: own.handle,
                locked: extents.iter().all(is_locked),
                extents: extents.clone(),
            }
        })?;
        let Answer::File(FileAnswer::Data { lengths, bytes }) = answer else {
            return Err(unexpected("read"));
        };
        let mut rest = &bytes[..];
        let mut cut = |length: &u32| {
            let (now, later) = rest
                .split_at_checked(*length as usize)
                .unwrap_or((rest, b""));
            rest = later;
            now.to_vec()
        };
        Ok(lengths.iter().map(&mut cut).collect())
    }

    fn read_pipe(&mut self, buf: &mut [u8]) -> Result<usize, Fault> {
        let bytes = self.receive_from_pipe(buf.len())?;
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn receive_from_pipe(&mut self, most: usize) -> Result<Arc<Vec<u8>>, Fault> {
        let length = u32::try_from(most.min(BLOCK_BYTES)).unwrap_or(u32::MAX);
        loop {
            let answer = self.call_once(&|own| FileCall::Read {
                handle: own.handle,
                locked: false,
                extents: vec![Extent { offset: 0, length }],
            });
            match answer {
                Err(fault) if asks_for_retry(&fault) => {}
                Ok(Answer::File(FileAnswer::Data { bytes, .. })) => return Ok(bytes),
                Ok(_) => return Err(unexpected("read")),
                Err(fault) => return Err(fault),
            }
        }
    }
}
