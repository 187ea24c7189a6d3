//! Files that were written a moment ago.
//!
//! FTP tells times in seconds. A file that is written again within the second of its time, while it
//! is read, looks the same before and after. So, where no checksum tells more, a file is read only
//! once its time is past: what is written from then on changes it. That takes clocks that agree to
//! [`FRESH`], or a server whose clock is behind.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xdfs_proto::path::FileKind;
use xdfs_proto::{Code, Fault, Retry};

use super::link::Link;
use super::listed::Listed;
use super::pool::FtpStore;

/// Time after which a file that is written again has another time: a second, and another one for
/// the difference of clocks.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// Whether the file may have been written within [`FRESH`].
pub(super) fn is_fresh(listed: &Listed) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as i128);
    let Some(time) = listed.attributes.mtime() else {
        return false;
    };
    let age = now - i128::from(time);
    let fresh = FRESH.as_nanos() as i128;
    // Far in the future is no time of writing.
    (-fresh..fresh).contains(&age)
}

/// The file as it is when it may be read: unless it is compared by checksums, once it is not fresh
/// any more.
///
/// # Errors
/// It is still being written, or can't be looked at.
pub(super) fn settled(
    link: &mut Link,
    path: &[u8],
    listed: Listed,
    is_compared: bool,
) -> Result<Listed, Fault> {
    let is_file = listed.attributes.kind == FileKind::File;
    if !is_file || is_compared || !is_fresh(&listed) {
        return Ok(listed);
    }
    link.rest(FRESH)?;
    let again = FtpStore::look(link, path)?;
    match is_fresh(&again) {
        true => Err(being_written(path)),
        false => Ok(again),
    }
}

/// The fault of a file that is fresh again and again.
pub(super) fn being_written(path: &[u8]) -> Fault {
    let cause = "it is being written, and the server computes no checksum to compare with";
    Fault::new(Code::SourceChanged, "open the source", cause)
        .path(path)
        .retry(Retry::Now)
        .hint("copy it again once it is complete")
}
