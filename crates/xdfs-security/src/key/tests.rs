//! Tests of `key`.

mod keys;
mod list;
mod message;
mod proof;
mod sample;

#[cfg(unix)]
mod agent;

use std::path::PathBuf;

use sample::{LOCKED_PUB, P256, P384, P521_PUB, RSA_PUB};
use tempfile::TempDir;

use super::{PublicKey, SigningKey, make_key};
use crate::Binding;

const HERE: Binding = [7; 32];
const ELSEWHERE: Binding = [8; 32];
const NOW: u64 = 1_785_400_000;

/// A folder with a new key in the file `key`.
fn folder_with_key() -> (TempDir, PathBuf, PublicKey) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("key");
    let public = make_key(&path, "of a test").unwrap();
    (folder, path, public)
}

fn new_key() -> SigningKey {
    let (_folder, path, _) = folder_with_key();
    SigningKey::load(&path, || None).unwrap()
}

fn key_of(text: &str) -> SigningKey {
    SigningKey::from_openssh(text.as_bytes(), || None).unwrap()
}
