//! The exact target of a tree, which is settled before its first attempt.
//!
//! A tree is copied under the name of its target, or into it if it is there already. A process that
//! is killed when all has arrived, and before that is written, would find it there, and copy the
//! tree into itself.

use std::path::PathBuf;

use tokio::task::spawn_blocking;
use xdfs::operations::path::{join, last_part, trimmed};
use xdfs::operations::{PathSide, SidePath};
use xdfs::{Code, Fault, FileKind, Job, JobPlace};

use crate::id::JobId;
use crate::inventory::path_of;
use crate::sessions::TransferSessions;
use crate::store::Store;

/// The job of a transfer, by its place in its job; that of a tree with its exact target.
///
/// # Errors
/// The target can't be looked at, or what was found not be stored.
pub(crate) async fn exact(
    store: &Store,
    sessions: TransferSessions,
    (id, position): (JobId, u32),
    mut job: Job,
) -> Result<Job, Fault> {
    let Job::Tree(tree) = &mut job else {
        return Ok(job);
    };
    let source = bytes_of(&tree.source);
    if source.ends_with(b"/") {
        return Ok(job);
    }
    let target = match store.target_path(id, position).await? {
        Some(target) => target,
        None => {
            let (place, name) = (tree.target.clone(), last_part(trimmed(&source)).to_vec());
            let looked = spawn_blocking(move || look(&sessions, &place, &name)).await;
            let target = looked.map_err(|error| {
                Fault::new(Code::Internal, "look at the target", error.to_string())
            })??;
            let settled = store.settle_target(id, position, &target).await?;
            settled.unwrap_or(target)
        }
    };
    set(&mut tree.target, target)?;
    // Under this name, whether it is there or not.
    set(&mut tree.source, [&source[..], b"/"].concat())?;
    Ok(job)
}

fn bytes_of(place: &JobPlace) -> Vec<u8> {
    match place {
        JobPlace::Local(path) => path_of(path).to_vec(),
        JobPlace::Server(place) => place.path.clone(),
        _ => Vec::new(),
    }
}

fn set(place: &mut JobPlace, path: Vec<u8>) -> Result<(), Fault> {
    match place {
        JobPlace::Local(own) => *own = local(path)?,
        JobPlace::Server(place) => place.path = path,
        _ => {}
    }
    Ok(())
}

#[cfg(unix)]
#[expect(
    clippy::unnecessary_wraps,
    reason = "other systems have paths that aren't bytes"
)]
fn local(path: Vec<u8>) -> Result<PathBuf, Fault> {
    use std::os::unix::ffi::OsStringExt as _;
    Ok(std::ffi::OsString::from_vec(path).into())
}

#[cfg(not(unix))]
fn local(path: Vec<u8>) -> Result<PathBuf, Fault> {
    let text = String::from_utf8(path);
    let text =
        text.map_err(|error| Fault::new(Code::InvalidArgument, "use the path", error.to_string()))?;
    Ok(text.into())
}

/// The path of a tree with this name: in the target, if it is a directory.
fn look(sessions: &TransferSessions, place: &JobPlace, name: &[u8]) -> Result<Vec<u8>, Fault> {
    let path = bytes_of(place);
    let side = match place {
        JobPlace::Server(place) => PathSide::Remote(sessions.get(place)?),
        _ => PathSide::Local,
    };
    match SidePath::new(side, &path).stat(true) {
        Ok(found) if found.kind == FileKind::Directory => Ok(join(&path, name)),
        Err(fault) if fault.code != Code::NotFound => Err(fault),
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::secret::Keyring;
    use crate::sessions::Sessions;
    use crate::spec::Submission;

    #[test]
    fn the_target_of_a_tree_is_the_same_before_and_after_it_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
        let done = runtime.block_on(async {
            let folder = tempfile::tempdir()?;
            let store = Store::open(&folder.path().join("db")).await?;
            let sessions = Arc::new(Sessions::new(|_| panic!("both targets are local")));
            let (new, old) = (folder.path().join("new"), folder.path().join("old"));
            fs::create_dir(&old)?;
            let tree = |target: &Path| {
                format!(
                    r#"{{"tree":{{"source":"xdfs://h/runs","target":"{}"}}}}"#,
                    target.display()
                )
            };
            let text = format!(
                r#"{{"version":1,"transfers":[{},{}]}}"#,
                tree(&new),
                tree(&old)
            );
            let submission: Submission = serde_json::from_str(&text)?;
            let id = store.submit(&submission, "me", None).await?.id;
            let tasks = store.tasks(id, None).await?;
            for _ in 0..2 {
                for (task, expected) in tasks.iter().zip([&new, &old.join("runs")]) {
                    let at = (id, task.position);
                    let own = TransferSessions::of(Arc::clone(&sessions), Keyring::own());
                    let job = Job::from_json(&task.text)?;
                    let Job::Tree(job) = exact(&store, own, at, job).await? else {
                        panic!("it is a tree");
                    };
                    assert_eq!(bytes_of(&job.target), path_of(expected));
                    assert!(bytes_of(&job.source).ends_with(b"/runs/"));
                }
                // As after a kill at the end.
                fs::create_dir_all(&new)?;
                fs::create_dir_all(old.join("runs"))?;
            }
            Ok::<_, Box<dyn std::error::Error>>(())
        });
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}
