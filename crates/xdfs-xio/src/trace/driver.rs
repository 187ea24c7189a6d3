//! The driver `trace`.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::filter::Trace;
use super::log::Log;
use crate::attribute::Attribute;
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;

/// The options of the driver.
struct TraceOptions {
    file: Option<PathBuf>,
    sample: u64,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            file: None,
            sample: 1,
        }
    }
}

const ATTRIBUTES: &[Attribute<TraceOptions>] = &[
    Attribute {
        name: "file",
        takes: "the path of a file that gets the lines",
        set: |options, text| {
            options.file = Some(text.into());
            (!text.is_empty()).then_some(())
        },
        text: |options| Some(options.file.as_ref()?.to_str()?.to_owned()),
    },
    Attribute {
        name: "sample",
        takes: "the number of calls for each that is written; 0 for summaries alone",
        set: |options, text| {
            options.sample = text.parse().ok()?;
            Some(())
        },
        text: |options| (options.sample != 1).then(|| options.sample.to_string()),
    },
];

/// The driver `trace`. Without a file it only measures, for its controls.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("trace", ATTRIBUTES, |options: TraceOptions| {
        let TraceOptions { file, sample } = options;
        // Opened with the first stream, and shared by all of the stack.
        let opened: Mutex<Option<Arc<Log>>> = Mutex::new(None);
        Filtering(move |_| {
            let mut opened = opened.lock().unwrap_or_else(|e| e.into_inner());
            if let (None, Some(path)) = (&*opened, &file) {
                let log = Log::open(path).map_err(|e| {
                    let why = format!("the driver 'trace' can't write {}: {e}", path.display());
                    io::Error::new(e.kind(), why)
                })?;
                *opened = Some(Arc::new(log));
            }
            Ok(Trace::new(opened.clone(), sample))
        })
    })
    .needs(&[Property::Order])
}
