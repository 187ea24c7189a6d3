//! Driver stacks: open, close, read and write over a transport and the transforms above it.
//!
//! A [`Stream`] is an open stack of one channel; a [`Listener`] is a passive open. All calls are
//! non-blocking: they answer [`std::io::ErrorKind::WouldBlock`] where they would wait, and the
//! readiness they wait for comes from a [`xdfs_sys::poll::Poller`].
//!
//! A [`Stack`] opens and listens. A [`Registry`] makes it from a [`StackSpec`], which is the text
//! `tcp:nodelay=false,tls` in parts: the transport, and the transforms that are pushed on it. The
//! engine and the library use stacks and never a driver. Only transports move bytes; a
//! [`Transform`] turns bytes into bytes.
//!
//! Each driver is a folder with the same files: `mod.rs` says what it gives, `driver.rs` what the
//! registry knows, `stream.rs` holds its [`Stream`], `listener.rs` its [`Listener`]. One suite,
//! `tests/behaviour.rs`, runs over all that is registered.

#![forbid(unsafe_code)]

mod attribute;
mod driver;
mod endpoint;
pub mod memory;
mod registry;
mod socket;
mod spec;
mod stack;
mod stream;
pub mod tcp;
pub mod tls;
mod transform;
pub mod unix;

pub use attribute::{Attribute, AttributeHelp};
pub use driver::{Driver, Layer, Property, Role, Transport};
pub use endpoint::{Endpoint, Form, Location};
pub use registry::Registry;
pub use spec::{DriverSpec, SpecError, StackSpec};
pub use stack::Stack;
pub use stream::{Capabilities, Extension, Listener, Offload, Protected, Protection, Stream};
pub use transform::{End, Output, Room, Transform, Transformed};
