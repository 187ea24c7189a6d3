//! A store of a member of a group: it answers the call about the group.

use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::group::Group;
use xdfs_proto::path::{Answer, Call};
use xdfs_store::Store;

/// The store of a user, at a member of a group.
#[derive(Debug)]
pub(crate) struct GroupStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) group: Arc<Group>,
}

impl Store for GroupStore {
    xdfs_store::forward!(Store to inner: is_slow, open_source, open_sink, check_sink, read_pack,
        write_pack, packs_wait, open_file);

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
