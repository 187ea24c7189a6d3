//! Authorities, users, proxies and contexts, all made here.

mod chains;
mod contexts;
mod grid;
mod lists;
mod records;
