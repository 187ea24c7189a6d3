//! A store of a member of a group: it answers the call about the group, and takes parts of files
//! that other members publish.

use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::group::Group;
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::stripes::part_of;
use xdfs_store::{OpenedSink, SharedStore, SinkRequest, Store};

use crate::part::PartSink;

/// The store of a user, at a member of a group.
#[derive(Debug)]
pub(crate) struct GroupStore {
    pub(crate) inner: Arc<dyn SharedStore>,
    pub(crate) group: Arc<Group>,
}

impl Store for GroupStore {
    xdfs_store::forward!(Store to inner: is_slow, open_source, check_sink, read_pack, write_pack,
        packs_wait, open_file);

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        match part_of(&request.path) {
            Some(place) => PartSink::open(Arc::clone(&self.inner), place, request),
            None => self.inner.open_sink(request),
        }
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let Call::Group { path } = call else {
            return self.inner.call(call, part);
        };
        // It has the rights for that, or the list is none of its business.
        let look = Call::Stat {
            path: path.clone(),
            follow: true,
        };
        self.inner.call(&look, part)?;
        Ok(Answer::Group((*self.group).clone()))
    }
}
