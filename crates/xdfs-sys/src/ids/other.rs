//! Systems on which threads have no ids of their own.

use std::io;

use super::Ids;

fn unsupported() -> io::Error {
    let cause = "threads with the ids of an account need Linux";
    io::Error::new(io::ErrorKind::Unsupported, cause)
}

pub(super) fn account(_: &str) -> io::Result<Option<(u32, u32, Vec<u32>)>> {
    Err(unsupported())
}

pub(super) fn check_may_change() -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn has(_: &Ids) -> io::Result<bool> {
    Err(unsupported())
}

pub(super) fn take_on(_: &Ids) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn user_of_name(_: &str) -> io::Result<Option<u32>> {
    Ok(None)
}

pub(super) fn group_of_name(_: &str) -> io::Result<Option<u32>> {
    Ok(None)
}

pub(super) fn name_of_user(_: u32) -> io::Result<Option<String>> {
    Ok(None)
}

pub(super) fn name_of_group(_: u32) -> io::Result<Option<String>> {
    Ok(None)
}
