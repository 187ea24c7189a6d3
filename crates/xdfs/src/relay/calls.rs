//! The calls of a client to a relay.

use xdfs_proto::path::{Answer, Call};
use xdfs_proto::relay::{
    ParcelEnd, ParcelList, ParcelName, ParcelOrder, ParcelQuery, ParcelStatus, RelayCall,
};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault};

use crate::client::Client;
use crate::remote::RemotePlace;

/// An identifier for a parcel.
///
/// # Errors
/// The system has no randomness.
pub fn new_parcel_id() -> Result<CopyId, Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        let cause = "the system has no randomness";
        Fault::new(Code::Internal, "open the parcel", cause)
    })?;
    Ok(CopyId(bytes))
}

impl Client {
    /// Opens a parcel at the server, which is a relay: the file that is uploaded to
    /// [`parcel_path`](crate::parcel_path) is delivered to the target of the order, also after the
    /// end of this session and of this process. The same order can be given again.
    ///
    /// # Errors
    /// [`Code::Unsupported`]: the server is no relay. Or it takes no files for this user or target,
    /// has no room, or the user has another parcel with the identifier.
    pub fn open_parcel(&self, order: ParcelOrder) -> Result<(), Fault> {
        self.call(Call::Relay(RelayCall::Open(Box::new(order))))
            .map(drop)
    }

    /// The state of a parcel of this user, or of another one for an operator.
    ///
    /// # Errors
    /// [`Code::Unsupported`]: the server is no relay. [`Code::NotFound`]: it doesn't know the
    /// parcel (any more).
    pub fn parcel_status(&self, parcel: impl Into<ParcelName>) -> Result<ParcelStatus, Fault> {
        Ok(self.named(self.parcel_status_as_sent(parcel)?))
    }

    /// The state of a parcel without the names of machines.
    pub(super) fn parcel_status_as_sent(
        &self,
        parcel: impl Into<ParcelName>,
    ) -> Result<ParcelStatus, Fault> {
        match self.call(Call::Relay(RelayCall::Status(parcel.into())))? {
            Answer::ParcelStatus(status) => Ok(*status),
            // The engine lets nothing else through.
            _ => Err(Fault::new(
                Code::Internal,
                "look at the parcel",
                "another answer",
            )),
        }
    }

    /// Names the server at which the fault of a parcel arose: the relay that has it, or the target.
    fn named(&self, mut status: ParcelStatus) -> ParcelStatus {
        let place = match status.is_fault_there {
            true => Some(&status.target),
            false => status.holder.as_ref(),
        };
        let place = place.and_then(|place| place.parse::<RemotePlace>().ok());
        let machine = place.map_or_else(|| self.machine(), |place| place.address.machine());
        status.fault = status.fault.map(|fault| fault.remote().at(&machine));
        status
    }

    /// Ends a parcel of this user, or of another one for an operator, or has it tried again.
    ///
    /// # Errors
    /// As [`Self::parcel_status`].
    pub fn end_parcel(&self, parcel: impl Into<ParcelName>, end: ParcelEnd) -> Result<(), Fault> {
        let call = RelayCall::End(parcel.into(), end);
        self.call(Call::Relay(call)).map(drop)
    }

    /// A part of the list of parcels of this user, or of all users for an operator.
    ///
    /// # Errors
    /// [`Code::Unsupported`]: the server is no relay. [`Code::PermissionDenied`]: those of others
    /// are asked for, and the user is no operator.
    pub fn parcels(&self, query: ParcelQuery) -> Result<ParcelList, Fault> {
        match self.call(Call::Relay(RelayCall::List(query)))? {
            Answer::Parcels(mut list) => {
                for parcel in &mut list.parcels {
                    let status = parcel.status.clone();
                    parcel.status = self.named(status);
                }
                Ok(list)
            }
            // The engine lets nothing else through.
            _ => Err(Fault::new(
                Code::Internal,
                "list the parcels",
                "another answer",
            )),
        }
    }
}
