//! Manifests are written in parts, as they are read by a client.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use base64ct::{Base64, Encoding as _};
use futures_util::stream;
use sha2::{Digest as _, Sha512};
use xdfs::{Code, Fault};

use crate::id::JobId;
use crate::listed::{Cursor, JobFile};
use crate::manifest::{Line, VERSION};
use crate::shared::Shared;

/// Lines that are read from the database at once.
const LINES: u32 = 1000;

/// The next part of a manifest.
enum Part {
    Head,
    Transfers(u64),
    Files(Cursor),
    Signature,
    Nothing,
}

struct Writer {
    shared: Arc<Shared>,
    id: JobId,
    next: Part,
    sha512: Sha512,
    files: u64,
    bytes: u64,
}

/// The manifest of a job, as the body of an answer.
///
/// # Errors
/// The job has none.
pub(crate) async fn body(shared: Arc<Shared>, id: JobId) -> Result<Body, Fault> {
    shared.store.check_manifest(id).await?;
    let writer = Writer {
        shared,
        id,
        next: Part::Head,
        sha512: Sha512::new(),
        files: 0,
        bytes: 0,
    };
    let parts = stream::try_unfold(writer, |mut writer| async move {
        let part = writer.part().await.map_err(|fault| {
            tracing::error!(job = %writer.id, %fault, "can't write a manifest");
            std::io::Error::other(fault.to_string())
        })?;
        Ok::<_, std::io::Error>(part.map(|part| (Bytes::from(part), writer)))
    });
    Ok(Body::from_stream(parts))
}

fn write(out: &mut Vec<u8>, line: &Line) -> Result<(), Fault> {
    serde_json::to_writer(&mut *out, line)
        .map_err(|error| Fault::new(Code::Internal, "write the manifest", error.to_string()))?;
    out.push(b'\n');
    Ok(())
}

impl Writer {
    /// The next lines; `None` at the end.
    async fn part(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let (store, id) = (&self.shared.store, self.id);
        let mut out = Vec::new();
        self.next = match &self.next {
            Part::Head => {
                let ended_at = store.check_manifest(id).await?;
                let job = store.job(id).await?.job;
                let line = Line::Manifest {
                    version: VERSION,
                    job: id,
                    owner: job.owner,
                    label: job.label,
                    ended_at,
                };
                write(&mut out, &line)?;
                Part::Transfers(0)
            }
            Part::Transfers(from) => {
                let transfers = store.listed_transfers(id, *from, LINES).await?;
                let next = transfers.last().map(|last| u64::from(last.position) + 1);
                for transfer in transfers {
                    write(&mut out, &Line::Transfer(transfer))?;
                }
                next.map_or_else(|| Part::Files(Cursor::default()), Part::Transfers)
            }
            Part::Files(after) => {
                let files = store.files(id, after, LINES).await?;
                let next = files.last().map(Cursor::after);
                for file in files.into_iter().map(JobFile::listed) {
                    self.files += 1;
                    self.bytes = self.bytes.saturating_add(file.bytes);
                    write(&mut out, &Line::File(file))?;
                }
                match next {
                    Some(after) => Part::Files(after),
                    None => {
                        let (files, bytes) = (self.files, self.bytes);
                        write(&mut out, &Line::End { files, bytes })?;
                        Part::Signature
                    }
                }
            }
            Part::Signature => {
                let sha512 = self.sha512.clone().finalize().into();
                let (key, signature) = self.shared.manifest_key.sign(&sha512)?;
                let signature = Base64::encode_string(&signature);
                write(&mut out, &Line::Signature { key, signature })?;
                Part::Nothing
            }
            Part::Nothing => return Ok(None),
        };
        self.sha512.update(&out);
        Ok(Some(out))
    }
}
