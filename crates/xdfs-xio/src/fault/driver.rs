//! The driver `fault`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::course::Course;
use super::filter::Fault;
use super::options::{ATTRIBUTES, FaultOptions};
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;
use crate::transform::End;

/// The driver `fault`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("fault", ATTRIBUTES, |options: FaultOptions| {
        let streams = AtomicU64::new(0);
        Filtering(move |end| {
            let number = streams.fetch_add(1, Ordering::Relaxed);
            let course = |direction| {
                let end = u64::from(end == End::Acceptor);
                Course::new(&options, number << 2 | end << 1 | direction)
            };
            Ok(Fault::new(course(0), course(1)))
        })
    })
    .needs(&[Property::Order])
}
