//! Methods of stores, sources and sinks by name.
//!
//! [`Store`](crate::Store), [`Source`](crate::Source) and [`Sink`](crate::Sink) have no default
//! methods, so that a layer over another store can't forget one: a right, a count or a record would
//! be missing, and nothing would show it. Each implementation writes a method itself, or names it
//! in [`forward!`](crate::forward) or [`defaults!`](crate::defaults).

pub use xdfs_proto::digest::Fragment;
pub use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
pub use xdfs_proto::path::{Answer, Call};
pub use xdfs_proto::{ByteRange, Fault};

use xdfs_proto::Code;

/// The fault of a store without sources.
#[must_use]
pub fn only_written(path: &[u8]) -> Fault {
    unsupported("open the source", path, "it can only be written")
}

/// The fault of a store without sinks.
#[must_use]
pub fn only_read(path: &[u8]) -> Fault {
    unsupported("open the target", path, "it can only be read")
}

/// The fault of a store without names.
#[must_use]
pub fn no_names(operation: &str, path: &[u8]) -> Fault {
    let cause = "this place has no names that could be looked at";
    unsupported(operation, path, cause)
}

/// The fault of a sink that can't read what was written.
#[must_use]
pub fn unreadable() -> Fault {
    unsupported("read back", b"", "what was written can't be read here")
}

/// The fault of a store without access in place.
#[must_use]
pub fn no_files(path: &[u8]) -> Fault {
    unsupported("open", path, "files aren't worked on in place here")
}

fn unsupported(operation: &str, path: &[u8], cause: &str) -> Fault {
    Fault::new(Code::Unsupported, operation, cause).path(path)
}

/// Methods of a layer that only pass calls on: within its implementation of `Store`, `Source` or
/// `Sink`, the field of what lies below, and the names of the methods.
///
/// ```
/// use xdfs_proto::Fault;
/// use xdfs_store::{Source, SourceInfo};
///
/// /// Counts the bytes that are read.
/// #[derive(Debug)]
/// struct Counted {
///     inner: Box<dyn Source>,
///     bytes: u64,
/// }
///
/// impl Source for Counted {
///     fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
///         let read = self.inner.read_at(offset, buf)?;
///         self.bytes += read as u64;
///         Ok(read)
///     }
///
///     xdfs_store::forward!(Source to inner: info, next_data, will_read, is_slow, shared,
///         verify_unchanged);
///     // They would be read without being counted.
///     xdfs_store::defaults!(Source: is_cold, direct, memory, is_uniform);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($kind:ident to $below:ident: $($method:ident),+ $(,)?) => {
        $($crate::forward!(@ $kind $method $below);)+
    };
    (@ Store is_slow $below:ident) => {
        fn is_slow(&self) -> bool {
            self.$below.is_slow()
        }
    };
    (@ Store open_source $below:ident) => {
        fn open_source(
            &self,
            path: &[u8],
        ) -> ::std::result::Result<::std::boxed::Box<dyn $crate::Source>, $crate::layer::Fault> {
            self.$below.open_source(path)
        }
    };
    (@ Store open_sink $below:ident) => {
        fn open_sink(
            &self,
            request: &$crate::SinkRequest,
        ) -> ::std::result::Result<$crate::OpenedSink, $crate::layer::Fault> {
            self.$below.open_sink(request)
        }
    };
    (@ Store check_sink $below:ident) => {
        fn check_sink(
            &self,
            request: &$crate::SinkRequest,
        ) -> ::std::result::Result<::std::vec::Vec<u8>, $crate::layer::Fault> {
            self.$below.check_sink(request)
        }
    };
    (@ Store read_pack $below:ident) => {
        fn read_pack(
            &self,
            root: &[u8],
            request: &$crate::layer::PackRequest,
            pack: &mut $crate::layer::PackWriter,
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.read_pack(root, request, pack)
        }
    };
    (@ Store write_pack $below:ident) => {
        fn write_pack(
            &self,
            root: &[u8],
            options: $crate::PackOptions,
            pack: &[u8],
        ) -> ::std::result::Result<$crate::layer::Failures, $crate::layer::Fault> {
            self.$below.write_pack(root, options, pack)
        }
    };
    (@ Store packs_wait $below:ident) => {
        fn packs_wait(&self, root: &[u8]) -> bool {
            self.$below.packs_wait(root)
        }
    };
    (@ Store call $below:ident) => {
        fn call(
            &self,
            call: &$crate::layer::Call,
            part: &mut dyn FnMut(
                $crate::layer::Answer,
            ) -> ::std::result::Result<(), $crate::layer::Fault>,
        ) -> ::std::result::Result<$crate::layer::Answer, $crate::layer::Fault> {
            self.$below.call(call, part)
        }
    };
    (@ Store open_file $below:ident) => {
        fn open_file(
            &self,
            request: &$crate::FileRequest,
        ) -> ::std::result::Result<$crate::OpenedFile, $crate::layer::Fault> {
            self.$below.open_file(request)
        }
    };
    (@ Source info $below:ident) => {
        fn info(&self) -> &$crate::SourceInfo {
            self.$below.info()
        }
    };
    (@ Source read_at $below:ident) => {
        fn read_at(
            &mut self,
            offset: u64,
            buf: &mut [u8],
        ) -> ::std::result::Result<usize, $crate::layer::Fault> {
            self.$below.read_at(offset, buf)
        }
    };
    (@ Source next_data $below:ident) => {
        fn next_data(
            &mut self,
            offset: u64,
            end: u64,
        ) -> ::std::result::Result<
            ::std::option::Option<$crate::layer::ByteRange>,
            $crate::layer::Fault,
        > {
            self.$below.next_data(offset, end)
        }
    };
    (@ Source will_read $below:ident) => {
        fn will_read(&mut self, range: $crate::layer::ByteRange) {
            self.$below.will_read(range);
        }
    };
    (@ Source is_cold $below:ident) => {
        fn is_cold(&self, range: $crate::layer::ByteRange) -> bool {
            self.$below.is_cold(range)
        }
    };
    (@ Source direct $below:ident) => {
        fn direct(&self) -> ::std::option::Option<::std::boxed::Box<dyn $crate::Source>> {
            self.$below.direct()
        }
    };
    (@ Source is_slow $below:ident) => {
        fn is_slow(&self) -> bool {
            self.$below.is_slow()
        }
    };
    (@ Source memory $below:ident) => {
        fn memory(
            &self,
        ) -> ::std::option::Option<::std::sync::Arc<::std::vec::Vec<u8>>> {
            self.$below.memory()
        }
    };
    (@ Source is_uniform $below:ident) => {
        fn is_uniform(&self) -> bool {
            self.$below.is_uniform()
        }
    };
    (@ Source shared $below:ident) => {
        fn shared(&mut self) -> ::std::option::Option<&mut dyn $crate::SharedSource> {
            self.$below.shared()
        }
    };
    (@ Source verify_unchanged $below:ident) => {
        fn verify_unchanged(&mut self) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.verify_unchanged()
        }
    };
    (@ Sink capabilities $below:ident) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$below.capabilities()
        }
    };
    (@ Sink write_at $below:ident) => {
        fn write_at(
            &mut self,
            offset: u64,
            bufs: &[::std::io::IoSlice<'_>],
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.write_at(offset, bufs)
        }
    };
    (@ Sink begin_direct $below:ident) => {
        fn begin_direct(
            &mut self,
            range: $crate::layer::ByteRange,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::sync::Arc<dyn $crate::DirectWriter>>,
            $crate::layer::Fault,
        > {
            self.$below.begin_direct(range)
        }
    };
    (@ Sink end_direct $below:ident) => {
        fn end_direct(
            &mut self,
            range: $crate::layer::ByteRange,
            result: ::std::result::Result<(), $crate::layer::Fault>,
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.end_direct(range, result)
        }
    };
    (@ Sink hole $below:ident) => {
        fn hole(&mut self, range: $crate::layer::ByteRange) {
            self.$below.hole(range);
        }
    };
    (@ Sink begin_write_back $below:ident) => {
        fn begin_write_back(&mut self, range: $crate::layer::ByteRange) {
            self.$below.begin_write_back(range);
        }
    };
    (@ Sink sync $below:ident) => {
        fn sync(&mut self) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.sync()
        }
    };
    (@ Sink verify $below:ident) => {
        fn verify(
            &mut self,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::vec::Vec<$crate::layer::Fragment>>,
            $crate::layer::Fault,
        > {
            self.$below.verify()
        }
    };
    (@ Sink read_back $below:ident) => {
        fn read_back(
            &mut self,
            offset: u64,
            buf: &mut [u8],
        ) -> ::std::result::Result<usize, $crate::layer::Fault> {
            self.$below.read_back(offset, buf)
        }
    };
    (@ Sink shared $below:ident) => {
        fn shared(&mut self) -> ::std::option::Option<&mut dyn $crate::SharedPartial> {
            self.$below.shared()
        }
    };
    (@ Sink record $below:ident) => {
        fn record(
            &mut self,
            durable: &[$crate::layer::Fragment],
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.record(durable)
        }
    };
    (@ Sink publish $below:ident) => {
        fn publish(
            &mut self,
            length: u64,
            fresh: &[$crate::layer::Fragment],
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.publish(length, fresh)
        }
    };
    (@ Sink discard $below:ident) => {
        fn discard(&mut self) -> ::std::result::Result<(), $crate::layer::Fault> {
            self.$below.discard()
        }
    };
}

/// Methods that a store, source or sink has no use for, by name, within its implementation of
/// `Store`, `Source` or `Sink`.
///
/// | method | default |
/// |---|---|
/// | `Store::is_slow`, `packs_wait` | false |
/// | all others of `Store` | refuse with [`Unsupported`](xdfs_proto::Code::Unsupported) |
/// | `Source::next_data` | there are no holes |
/// | `Source::will_read` | ignored |
/// | `Source::is_cold`, `is_slow`, `is_uniform` | false |
/// | `Source::direct`, `memory`, `shared` | `None` |
/// | `Sink::begin_direct`, `shared` | `None` |
/// | `Sink::end_direct` | the result of the write |
/// | `Sink::hole`, `begin_write_back` | ignored |
/// | `Sink::verify` | nothing of an earlier attempt is intact |
/// | `Sink::read_back` | refuses with [`Unsupported`](xdfs_proto::Code::Unsupported) |
#[macro_export]
macro_rules! defaults {
    ($kind:ident: $($method:ident),+ $(,)?) => {
        $($crate::defaults!(@ $kind $method);)+
    };
    (@ Store is_slow) => {
        fn is_slow(&self) -> bool {
            false
        }
    };
    (@ Store open_source) => {
        fn open_source(
            &self,
            path: &[u8],
        ) -> ::std::result::Result<::std::boxed::Box<dyn $crate::Source>, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::only_written(path))
        }
    };
    (@ Store open_sink) => {
        fn open_sink(
            &self,
            request: &$crate::SinkRequest,
        ) -> ::std::result::Result<$crate::OpenedSink, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::only_read(&request.path))
        }
    };
    (@ Store check_sink) => {
        fn check_sink(
            &self,
            request: &$crate::SinkRequest,
        ) -> ::std::result::Result<::std::vec::Vec<u8>, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::only_read(&request.path))
        }
    };
    (@ Store read_pack) => {
        fn read_pack(
            &self,
            root: &[u8],
            _: &$crate::layer::PackRequest,
            _: &mut $crate::layer::PackWriter,
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::no_names("read", root))
        }
    };
    (@ Store write_pack) => {
        fn write_pack(
            &self,
            root: &[u8],
            _: $crate::PackOptions,
            _: &[u8],
        ) -> ::std::result::Result<$crate::layer::Failures, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::no_names("write", root))
        }
    };
    (@ Store packs_wait) => {
        fn packs_wait(&self, _: &[u8]) -> bool {
            false
        }
    };
    (@ Store call) => {
        fn call(
            &self,
            call: &$crate::layer::Call,
            _: &mut dyn FnMut(
                $crate::layer::Answer,
            ) -> ::std::result::Result<(), $crate::layer::Fault>,
        ) -> ::std::result::Result<$crate::layer::Answer, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::no_names(call.operation(), call.path()))
        }
    };
    (@ Store open_file) => {
        fn open_file(
            &self,
            request: &$crate::FileRequest,
        ) -> ::std::result::Result<$crate::OpenedFile, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::no_files(&request.path))
        }
    };
    (@ Source next_data) => {
        fn next_data(
            &mut self,
            offset: u64,
            end: u64,
        ) -> ::std::result::Result<
            ::std::option::Option<$crate::layer::ByteRange>,
            $crate::layer::Fault,
        > {
            let rest = $crate::layer::ByteRange { start: offset, end };
            ::std::result::Result::Ok((offset < end).then_some(rest))
        }
    };
    (@ Source will_read) => {
        fn will_read(&mut self, _: $crate::layer::ByteRange) {}
    };
    (@ Source is_cold) => {
        fn is_cold(&self, _: $crate::layer::ByteRange) -> bool {
            false
        }
    };
    (@ Source direct) => {
        fn direct(&self) -> ::std::option::Option<::std::boxed::Box<dyn $crate::Source>> {
            ::std::option::Option::None
        }
    };
    (@ Source is_slow) => {
        fn is_slow(&self) -> bool {
            false
        }
    };
    (@ Source memory) => {
        fn memory(
            &self,
        ) -> ::std::option::Option<::std::sync::Arc<::std::vec::Vec<u8>>> {
            ::std::option::Option::None
        }
    };
    (@ Source is_uniform) => {
        fn is_uniform(&self) -> bool {
            false
        }
    };
    (@ Source shared) => {
        fn shared(&mut self) -> ::std::option::Option<&mut dyn $crate::SharedSource> {
            ::std::option::Option::None
        }
    };
    (@ Sink begin_direct) => {
        fn begin_direct(
            &mut self,
            _: $crate::layer::ByteRange,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::sync::Arc<dyn $crate::DirectWriter>>,
            $crate::layer::Fault,
        > {
            ::std::result::Result::Ok(::std::option::Option::None)
        }
    };
    (@ Sink end_direct) => {
        fn end_direct(
            &mut self,
            _: $crate::layer::ByteRange,
            result: ::std::result::Result<(), $crate::layer::Fault>,
        ) -> ::std::result::Result<(), $crate::layer::Fault> {
            result
        }
    };
    (@ Sink hole) => {
        fn hole(&mut self, _: $crate::layer::ByteRange) {}
    };
    (@ Sink begin_write_back) => {
        fn begin_write_back(&mut self, _: $crate::layer::ByteRange) {}
    };
    (@ Sink verify) => {
        fn verify(
            &mut self,
        ) -> ::std::result::Result<
            ::std::option::Option<::std::vec::Vec<$crate::layer::Fragment>>,
            $crate::layer::Fault,
        > {
            ::std::result::Result::Ok(::std::option::Option::Some(::std::vec::Vec::new()))
        }
    };
    (@ Sink read_back) => {
        fn read_back(
            &mut self,
            _: u64,
            _: &mut [u8],
        ) -> ::std::result::Result<usize, $crate::layer::Fault> {
            ::std::result::Result::Err($crate::layer::unreadable())
        }
    };
    (@ Sink shared) => {
        fn shared(&mut self) -> ::std::option::Option<&mut dyn $crate::SharedPartial> {
            ::std::option::Option::None
        }
    };
}
