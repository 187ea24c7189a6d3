//! The search for the number of channels and the window that suit a path.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use xdfs::{Fault, TuneOptions, TuneReport, TuneSample, TuneSetting};

use crate::fault::raised;
use crate::settings::{self, Connector};
use crate::waiting::locked;

/// The interval between two looks for signals.
const TICK: Duration = Duration::from_millis(50);

fn sample<'py>(py: Python<'py>, sample: &TuneSample) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("channels", sample.setting.channels)?;
    fields.set_item("window", sample.setting.window)?;
    fields.set_item("phase", sample.phase.as_str())?;
    fields.set_item("bytes", sample.bytes)?;
    fields.set_item("seconds", sample.elapsed.as_secs_f64())?;
    fields.set_item("bytes_per_second", sample.bytes_per_second)?;
    Ok(fields)
}

fn report<'py>(py: Python<'py>, found: &TuneReport) -> PyResult<Bound<'py, PyDict>> {
    let setting = |setting: TuneSetting| (setting.channels, setting.window);
    let fields = PyDict::new(py);
    let samples = found.samples.iter();
    let samples: PyResult<Vec<_>> = samples.map(|one| sample(py, one)).collect();
    fields.set_item("samples", PyList::new(py, samples?)?)?;
    fields.set_item("end", found.end.as_str())?;
    fields.set_item("best", setting(found.best))?;
    let fastest = found.fastest.map(|(one, rate)| (setting(one), rate));
    fields.set_item("fastest", fastest)?;
    fields.set_item("default_bytes_per_second", found.default_bytes_per_second)?;
    fields.set_item("noise", found.noise)?;
    fields.set_item("gain", found.gain(TuneSetting::default()))?;
    Ok(fields)
}

/// Searches, and calls `on_sample` with each sample; the search ends once that returns `False`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python passes each by its name")]
pub(crate) fn tune(
    py: Python<'_>,
    url: &str,
    settings: &Bound<'_, PyDict>,
    download: bool,
    channels: Option<Vec<u32>>,
    bytes_max: Option<u64>,
    seconds_max: Option<f64>,
    on_sample: Option<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let connector = Connector::new(settings)?;
    let place = settings::place(url).map_err(|fault| raised(py, &fault))?;
    let mut options = TuneOptions {
        download,
        ..TuneOptions::default()
    };
    if let Some(channels) = channels {
        options.channels = channels;
    }
    if let Some(bytes) = bytes_max {
        options.bytes_max = bytes;
    }
    if let Some(seconds) = seconds_max {
        let time = Duration::try_from_secs_f64(seconds);
        options.time_max = time.map_err(|error| PyValueError::new_err(error.to_string()))?;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let (sender, samples) = mpsc::channel();
    let searching = thread::Builder::new().name("xdfs-tune".into());
    let searching = searching.spawn(move || {
        let connect = |setting| connector.connect_with(&place, setting);
        xdfs::tune(connect, &options, |sample| {
            // Without a receiver the search is over too.
            let is_unread = sender.send(sample.clone()).is_err();
            match is_unread || ends.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    })?;
    let samples = Mutex::new(samples);
    loop {
        match py.detach(|| locked(&samples).recv_timeout(TICK)) {
            Ok(one) => {
                if let Some(callback) = &on_sample {
                    let goes_further = callback.call1(py, (sample(py, &one)?,))?;
                    let is_false = goes_further
                        .bind(py)
                        .is(pyo3::types::PyBool::new(py, false));
                    is_over.fetch_or(is_false, Ordering::Relaxed);
                }
            }
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let found: Result<TuneReport, Fault> = py
        .detach(|| searching.join())
        .map_err(|_| PyRuntimeError::new_err("the search has panicked"))?;
    let found = found.map_err(|fault| raised(py, &fault))?;
    Ok(report(py, &found)?.into_any().unbind())
}
