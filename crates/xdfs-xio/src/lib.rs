//! Driver stacks: open, close, read and write over a transport and the transforms above it.
//!
//! A [`Stream`] is an open stack of one channel; a [`Listener`] is a passive open. No call blocks:
//! instead of waiting it returns [`std::io::ErrorKind::WouldBlock`], and a
//! [`xdfs_sys::poll::Poller`] reports the readiness.
//!
//! A [`Stack`] opens and listens. A [`Registry`] builds it from a [`StackSpec`], the parsed form of
//! a text such as `tcp:nodelay=false,tls`: the transport, and the transforms pushed on it. The
//! engine and the library use stacks, never drivers. Only transports move bytes; a [`Transform`]
//! turns bytes into bytes, and a [`Layer`] may see the calls themselves.
//!
//! Each driver is a folder with the same files: `mod.rs` documents its guarantees, `driver.rs`
//! registers it, `stream.rs` contains its [`Stream`], `listener.rs` its [`Listener`], if it can
//! listen. One suite, `tests/behaviour.rs`, tests all registered drivers that listen and keep
//! order.
//!
//! Programs use a stack by a [`Handle`], which waits: [`Stack::connect`], [`Stack::listen_at`].

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod attribute;
pub mod buffer;
mod compress;
mod contact;
mod control;
pub mod digest;
mod driver;
mod endpoint;
pub mod fault;
pub mod file;
mod filter;
mod foreign;
mod guard;
mod handle;
pub mod http;
mod layer;
pub mod lz4;
pub mod memory;
pub mod process;
pub mod ptcp;
mod queue;
pub mod quic;
mod registry;
mod socket;
mod spec;
mod stack;
pub mod stdio;
mod stream;
pub mod tcp;
pub mod throttle;
mod timer;
pub mod tls;
pub mod trace;
mod transform;
pub mod udp;
pub mod unix;
pub mod zstd;

pub use attribute::{Attribute, AttributeHelp};
pub use contact::ContactError;
pub use control::{Control, ControlValue};
pub use driver::{Driver, Role};
pub use endpoint::{Endpoint, Form, Location, Resource};
pub use foreign::LoadError;
pub use handle::{Cancelled, Canceller, Handle, Passive, Wait};
pub use layer::{Layer, ListeningSocket, Property, Transport};
pub use registry::Registry;
pub use spec::{DriverSpec, SpecError, StackSpec};
pub use stack::Stack;
pub use stream::{
    Capabilities, Extension, Listener, Offload, PathSample, Protected, Protection, Stream,
};
pub use transform::{ENCODED_BYTES_MAX, End, Output, Room, Transform, Transformed, free_spares};

/// The guide for programs, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/xio.md")]
#[expect(
    missing_debug_implementations,
    reason = "it exists only for its documentation"
)]
pub struct Guide;
