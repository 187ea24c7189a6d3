//! The search for the number of channels and the window that suit a path.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use xdfs::{Fault, TuneOptions, TuneReport, TuneSample, TuneSetting};

use crate::fault::{Owner, raised};
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

/// A search that runs in a thread. Dropping it ends the search after the sample that is being
/// taken.
#[pyclass(frozen, module = "xdfs._xdfs")]
#[derive(Debug)]
pub(crate) struct Tuning {
    owner: Owner,
    is_over: Arc<AtomicBool>,
    samples: Mutex<Receiver<TuneSample>>,
    /// `None` once its report was returned.
    searching: Mutex<Option<JoinHandle<Result<TuneReport, Fault>>>>,
}

#[pymethods]
impl Tuning {
    /// Starts to search.
    #[new]
    fn new(
        py: Python<'_>,
        url: &str,
        settings: &Bound<'_, PyDict>,
        download: bool,
        channels: Option<Vec<u32>>,
        bytes_max: Option<u64>,
        seconds_max: Option<f64>,
    ) -> PyResult<Self> {
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
        let is_over = Arc::<AtomicBool>::default();
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
        Ok(Self {
            owner: Owner::here(),
            is_over,
            samples: Mutex::new(samples),
            searching: Mutex::new(Some(searching)),
        })
    }

    /// Waits for the next sample, or for the end: whether it is the end, and the sample or the
    /// report.
    fn step<'py>(&self, py: Python<'py>) -> PyResult<(bool, Bound<'py, PyDict>)> {
        self.owner.check()?;
        loop {
            match py.detach(|| locked(&self.samples).recv_timeout(TICK)) {
                Ok(one) => return Ok((false, sample(py, &one)?)),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let searching = locked(&self.searching).take();
        let searching =
            searching.ok_or_else(|| PyRuntimeError::new_err("the search has ended already"))?;
        let found = py
            .detach(|| searching.join())
            .map_err(|_| PyRuntimeError::new_err("the search has panicked"))?;
        let found = found.map_err(|fault| raised(py, &fault))?;
        Ok((true, report(py, &found)?))
    }

    /// Ends the search after the sample that is being taken.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
