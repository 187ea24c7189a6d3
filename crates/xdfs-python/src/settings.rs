//! Settings of sessions: the user's own, as the program `xdfs` has them, and those given in Python.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use xdfs::security::Level;
use xdfs::settings::{Attendance, ClientConfig, Login, Secret};
use xdfs::{Client, ClientOptions, Code, Fault, RemotePlace, RetryPolicy, TuneSetting};

/// The options with which sessions are opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connector {
    login: Login,
    channels: Option<u32>,
    block_size: Option<u32>,
    window: Option<u32>,
    retries: Option<u32>,
    accepts_new: bool,
}

/// A place on a server, by a URL or by `NAME:PATH` of a server with a name.
pub(crate) fn place(text: &str) -> Result<RemotePlace, Fault> {
    if RemotePlace::is_remote(text) {
        return text.parse();
    }
    let config = ClientConfig::read()?;
    let word = OsStr::new(text);
    config.place(word).ok_or_else(|| {
        let cause = "it is no URL, and no server has that name";
        let fault = Fault::new(Code::InvalidArgument, "find the server of", cause);
        config.hinted(fault.path(text), [word])
    })
}

impl Connector {
    /// # Errors
    /// There is no such setting, or it has a wrong type or value.
    pub(crate) fn new(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut own = Self::default();
        let login = &mut own.login;
        for (name, value) in settings.iter() {
            let name: String = name.extract()?;
            let path = || value.extract::<PathBuf>();
            match name.as_str() {
                "channels" => own.channels = Some(number(&name, &value)?),
                "block_size" => own.block_size = Some(number(&name, &value)?),
                "window" => own.window = Some(number(&name, &value)?),
                "retries" => own.retries = Some(value.extract()?),
                "accept_new" => own.accepts_new = value.extract()?,
                "key" => login.key = Some(path()?),
                "agent" => login.agent = value.extract()?,
                "password_file" => login.password_file = Some(path()?),
                "token_file" => login.token_file = Some(path()?),
                "ticket_file" => login.ticket_file = Some(path()?),
                "anonymous" => login.anonymous = value.extract()?,
                "cert" => login.cert = Some(path()?),
                "cert_key" => login.cert_key = Some(path()?),
                "ca" => login.ca = Some(path()?),
                "pin" => {
                    let text: String = value.extract()?;
                    let pin = text.parse();
                    let wrong = |_| PyValueError::new_err("pin: it is no fingerprint of a key");
                    login.pin = Some(pin.map_err(wrong)?);
                }
                "known_only" => login.known_only = value.extract()?,
                "protect" => {
                    login.protect = Some(match value.extract::<String>()?.as_str() {
                        "private" => Level::Private,
                        "safe" => Level::Safe,
                        "clear" => Level::Clear,
                        _ => {
                            let message = "protect: it is none of private, safe and clear";
                            return Err(PyValueError::new_err(message));
                        }
                    });
                }
                "insecure" => login.insecure = value.extract()?,
                "ssh" => login.ssh = Some(value.extract()?),
                "remote_program" => login.remote_program = Some(value.extract()?),
                _ => {
                    let message = format!("there is no setting '{name}'");
                    return Err(PyTypeError::new_err(message));
                }
            }
        }
        Ok(own)
    }

    /// The retries of a queue of files.
    pub(crate) fn retry(&self) -> RetryPolicy {
        let default = RetryPolicy::default();
        RetryPolicy {
            retries_max: self.retries.unwrap_or(default.retries_max),
            ..default
        }
    }

    /// Opens a session.
    pub(crate) fn connect(&self, place: &RemotePlace) -> Result<Arc<Client>, Fault> {
        self.connect_with(place, TuneSetting::default())
    }

    /// Opens a session with another number of channels or another window.
    pub(crate) fn connect_with(
        &self,
        place: &RemotePlace,
        setting: TuneSetting,
    ) -> Result<Arc<Client>, Fault> {
        let config = ClientConfig::read()?;
        let login = config.login(place, &self.login)?;
        let options = ClientOptions {
            channels: setting.channels.or(self.channels),
            block_size: self.block_size,
            window: setting.window.or(self.window),
            ..ClientOptions::default()
        };
        let mut options = config.session(place).options(options);
        config.load_drivers(&mut options.drivers)?;
        // Nothing is typed into a program of Python; with it, a new server is remembered.
        let prompt = |secret: &Secret| {
            let cause = "a program of Python asks for no secret";
            let fault = Fault::new(Code::AuthenticationFailed, secret.operation, cause);
            Err(fault.hint("give it in a file"))
        };
        let attendance = match self.accepts_new {
            true => Attendance::Attended(&prompt),
            false => Attendance::Unattended,
        };
        let options = login.options(place, options, attendance)?;
        Client::connect(place, options).map(Arc::new)
    }
}

fn number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u32> {
    match value.extract::<u32>() {
        Ok(0) => Err(PyValueError::new_err(format!("{name}: it is 0"))),
        number => number,
    }
}
