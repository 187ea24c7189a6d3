//! Layers of a server over the stores of its users, at all doors.

use std::fmt;
use std::sync::Arc;

use xdfs_store::Store;

use crate::third_party::ThirdPartyUser;

/// A layer over the store of each admitted user: paths of its own beside those of exports.
pub trait StoreLayer: Send + Sync + fmt::Debug {
    /// The store of this user, with the layer over it.
    fn over(&self, store: Arc<dyn Store>, user: &ThirdPartyUser) -> Arc<dyn Store>;
}
