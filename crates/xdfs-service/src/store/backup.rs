//! Copies of a database of SQLite, while it is used.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use sqlx::{ConnectOptions as _, Connection as _};
use xdfs::{Code, Fault};

use super::fault;
use super::open::file_url;

const OPERATION: &str = "back up the database";

/// The file while it is written.
fn unfinished(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{}.unfinished", std::process::id()));
    name.into()
}

/// Writes the content of a database, as it is at one moment, to a new file for its owner alone.
///
/// # Errors
/// There is no database, the target exists, or it can't be written.
pub(crate) async fn backup(database: &Path, target: &Path) -> Result<(), Fault> {
    let io = |path: &Path| {
        let name = path.as_os_str().as_encoded_bytes().to_owned();
        move |error: std::io::Error| Fault::from_io(OPERATION, name, &error)
    };
    fs::metadata(database).map_err(io(database))?;
    if fs::symlink_metadata(target).is_ok() {
        let fault = Fault::new(Code::AlreadyExists, OPERATION, "the file exists");
        return Err(fault
            .path(target.as_os_str().as_encoded_bytes())
            .hint("name a new file"));
    }
    let unfinished = unfinished(target);
    let mut options = OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // SQLite takes an empty file, with its mode.
    let file = options.open(&unfinished).map_err(io(&unfinished))?;
    let written = write(database, &unfinished, &file).await;
    let written = written.and_then(|()| {
        fs::rename(&unfinished, target).map_err(io(target))?;
        sync_folder(target).map_err(io(target))
    });
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written.map_err(|fault| match fault.path.is_empty() {
        true => fault.path(database.as_os_str().as_encoded_bytes()),
        false => fault,
    })
}

async fn write(database: &Path, target: &Path, file: &File) -> Result<(), Fault> {
    let name = target.as_os_str().as_encoded_bytes();
    let text = target.to_str().ok_or_else(|| {
        Fault::new(Code::InvalidArgument, OPERATION, "its name isn't UTF-8").path(name)
    })?;
    sqlx::any::install_default_drivers();
    let mut connection = file_url(database)?.connect().await.map_err(fault)?;
    sqlx::query("VACUUM INTO $1")
        .bind(text)
        .execute(&mut connection)
        .await
        .map_err(fault)?;
    connection.close().await.map_err(fault)?;
    // SQLite leaves that to the caller.
    file.sync_all()
        .map_err(|error| Fault::from_io(OPERATION, name, &error))
}

/// Makes the name of a file durable.
fn sync_folder(file: &Path) -> std::io::Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
