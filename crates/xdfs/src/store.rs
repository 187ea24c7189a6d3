//! Stores of a program's own, for [`Client::upload_from`](crate::Client::upload_from) and
//! [`Client::download_to`](crate::Client::download_to).
//!
//! A [`Store`] opens a [`Source`] to be read, and a [`Sink`] to be written. Their documentation
//! says what the engine relies on; [`MemStore`] is a small one. Methods that a store has no use
//! for are named in [`defaults!`], and those that a layer over another store passes on in
//! [`forward!`]. A [`Place`] is a store at the far end of a session, by a
//! [`Scheme`](crate::Scheme).

pub use xdfs_proto::digest::Fragment;
pub use xdfs_proto::frame::Resume;
pub use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
pub use xdfs_proto::{ByteRange, SourceTag};
pub use xdfs_store::place::{Copied, DirectRequest, Directly};
pub use xdfs_store::{
    Capabilities, LocalStore, MemStore, OpenedSink, PackOptions, Place, Sink, SinkRequest, Source,
    SourceInfo, Store, Traits, checksum, defaults, forward, read_pack, write_pack,
};
