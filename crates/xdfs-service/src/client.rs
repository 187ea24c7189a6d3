//! A client of a service: what the commands use. It blocks, and needs no runtime.

use std::fmt;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::typestate::WithBody;
use ureq::{Agent, RequestBuilder, SendBody};
use xdfs::metrics::Scrape;
use xdfs::security::{SigningKey, prove_key};
use xdfs::{Code, Fault, RemotePlace};

use crate::access::{
    Challenge, KeyLogin, KeySession, NewToken, Secret, TokenPage, TokenRequest, binding, hex,
    host_of, random, read_token,
};
use crate::failure::Failure;
use crate::id::{JobId, ScheduleId};
use crate::model::{JobDetail, JobPage, Schedule, SchedulePage};
use crate::secret::SecretInfo;
use crate::secrets::{SecretPage, SecretRequest};
use crate::service::URL_FILE;
use crate::spec::{JobSettings, ScheduleSubmission, Submission};
use crate::state::StateName;
use crate::tls::{client_certificate, tls};

const OPERATION: &str = "ask the service";
const RUNNING: &str = "is `xdfs service` running?";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time in which a long list is stored.
const TIMEOUT_OF_LIST: Duration = Duration::from_secs(600);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of the text of metrics.
const METRICS_BYTES_MAX: u64 = 4 << 20;

/// The URL of the running service with this state folder; `None` if none runs.
#[must_use]
pub fn running_url(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join(URL_FILE)).ok()?;
    Some(text.trim().trim_end_matches('/').to_owned())
}

/// Reads the metrics of a server or a service at `url`, by HTTP without TLS.
///
/// # Errors
/// It can't be reached, or has no metrics.
pub fn read_metrics(url: &str) -> Result<Scrape, Fault> {
    const READ: &str = "read metrics";
    const READ_TIMEOUT: Duration = Duration::from_secs(10);
    let unreached = |error: ureq::Error| {
        let code = match error {
            ureq::Error::Timeout(_) => Code::DeadlineExceeded,
            _ => Code::ConnectionRefused,
        };
        Fault::new(code, READ, error.to_string())
            .path(url)
            .hint("is `xdfs serve --metrics` or `xdfs service` running there?")
    };
    let answer = agent(READ_TIMEOUT, tls(None))
        .get(format!("{url}/metrics"))
        .call();
    let mut answer = answer.map_err(unreached)?;
    if !answer.status().is_success() {
        let cause = format!("the answer is {}", answer.status());
        return Err(Fault::new(Code::ProtocolViolation, READ, cause).path(url));
    }
    let body = answer.body_mut().with_config().limit(METRICS_BYTES_MAX);
    let text = body.read_to_string().map_err(unreached)?;
    Scrape::read(&text).map_err(|fault| fault.path(url))
}

fn agent(timeout: Duration, tls: TlsConfig) -> Agent {
    Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(timeout))
        .proxy(None)
        .user_agent(concat!("xdfs/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

/// Whether the host of a URL is this machine by a name or an address of loopback.
#[must_use]
pub fn is_of_this_machine(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    match host.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => {
            let name = host.split(':').next().unwrap_or_default();
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

/// Refuses a URL of another machine without TLS, over which others could read the login.
fn check_protection(url: &str) -> Result<(), Fault> {
    if url.starts_with("https://") || is_of_this_machine(url) {
        return Ok(());
    }
    let cause = "without TLS others could read the login";
    Err(Fault::new(Code::ProtectionRefused, OPERATION, cause)
        .path(url)
        .hint("use a URL of https, or a tunnel: ssh -L"))
}

/// The login of a client to a service.
#[derive(Clone)]
pub enum ServiceLogin {
    /// The token in the state folder of the service, which only its owner can read.
    Owner,
    /// An API token.
    Token(String),
    /// Name and password of a user.
    Password(String, String),
    /// The name of a user, and the file of the private key that the service knows of it: a key of
    /// OpenSSH without a passphrase.
    Key(String, PathBuf),
    /// The files of a certificate chain and its private key (PEM), for a service that has TLS of
    /// its own. The service knows the user.
    Certificate(PathBuf, PathBuf),
}

impl fmt::Debug for ServiceLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "Owner",
            Self::Token(_) => "Token",
            Self::Password(..) => "Password",
            Self::Key(..) => "Key",
            Self::Certificate(..) => "Certificate",
        })
    }
}

/// A service, for a user of it.
#[derive(Debug)]
pub struct ServiceClient {
    agent: Agent,
    url: String,
    /// The header of requests that says whose they are, or that no page of others has made them.
    credential: &'static str,
    authorization: RwLock<Secret>,
    /// The user and the key that log in again, when the session has ended.
    key: Option<(String, PathBuf)>,
}

type Answer = Result<Response<ureq::Body>, ureq::Error>;

impl ServiceClient {
    /// The service with this state folder, for its owner. It is at `url`, or where its folder says.
    ///
    /// # Errors
    /// No service was started with this folder, or it isn't running.
    pub fn new(folder: &Path, url: Option<&str>) -> Result<Self, Fault> {
        Self::log_in(folder, url, &ServiceLogin::Owner)
    }

    /// The service with this state folder, or at `url`.
    ///
    /// # Errors
    /// No service was started with this folder, or it isn't running.
    pub fn log_in(folder: &Path, url: Option<&str>, login: &ServiceLogin) -> Result<Self, Fault> {
        let started = |fault: Fault| match fault.code {
            Code::NotFound => {
                fault.hint("start it with `xdfs service`, or name its folder with --data")
            }
            _ => fault,
        };
        let url = match url {
            Some(url) => url.to_owned(),
            None => {
                let path = folder.join(URL_FILE);
                fs::read_to_string(&path).map_err(|error| {
                    let name = path.as_os_str().as_encoded_bytes();
                    started(Fault::from_io("find the running service", name, &error))
                })?
            }
        };
        check_protection(url.trim())?;
        let certificate = match login {
            ServiceLogin::Certificate(chain, key) => Some(client_certificate(chain, key)?),
            _ => None,
        };
        let mut client = Self {
            agent: agent(TIMEOUT, tls(certificate)),
            url: url.trim().trim_end_matches('/').to_owned(),
            credential: match login {
                ServiceLogin::Certificate(..) => "Origin",
                _ => "Authorization",
            },
            authorization: RwLock::new(Secret::from_text("")),
            key: None,
        };
        let authorization = match login {
            ServiceLogin::Owner => {
                let token = read_token(folder).map_err(started)?;
                format!("Bearer {}", token.as_str())
            }
            ServiceLogin::Token(token) => format!("Bearer {token}"),
            ServiceLogin::Password(user, password) => {
                format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
            }
            ServiceLogin::Key(user, key) => {
                let session = client.session(user, key)?;
                client.key = Some((user.clone(), key.clone()));
                format!("Bearer {}", session.token)
            }
            // The service refuses changes by pages of others, which browsers show certificates for.
            ServiceLogin::Certificate(..) => client.url.clone(),
        };
        client.set_authorization(&authorization);
        Ok(client)
    }

    fn set_authorization(&self, text: &str) {
        let own = self.authorization.write();
        *own.unwrap_or_else(PoisonError::into_inner) = Secret::from_text(text);
    }

    /// Logs in by a key.
    fn session(&self, user: &str, key: &Path) -> Result<KeySession, Fault> {
        let mut key = SigningKey::load(key, || None)?;
        let host = host_of(&self.url).ok_or_else(|| {
            let cause = "it isn't http://HOST:PORT or https://HOST:PORT";
            Fault::new(Code::InvalidArgument, OPERATION, cause).path(&self.url)
        })?;
        let ask = |path: &str| {
            let request = self.agent.post(format!("{}/api/v1/{path}", self.url));
            request.header("Content-Type", "application/json")
        };
        let challenge: Challenge = self.read(ask("challenges").send_empty())?;
        let binding = binding(&host, &challenge.challenge);
        let login = KeyLogin {
            user: user.to_owned(),
            proof: hex(&prove_key(&mut key, user, &binding)?),
            challenge: challenge.challenge,
        };
        self.read(ask("logins").send(Self::written(&login)?))
    }

    fn authorization(&self) -> String {
        let own = self.authorization.read();
        own.unwrap_or_else(PoisonError::into_inner)
            .as_str()
            .to_owned()
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let ask = || {
            let request = self.agent.get(format!("{}/api/v1/{path}", self.url));
            self.read(request.header(self.credential, self.authorization()).call())
        };
        match (ask(), &self.key) {
            // A job is waited for longer than a session lasts.
            (Err(fault), Some((user, key))) if fault.code == Code::AuthenticationFailed => {
                let session = self.session(user, key)?;
                self.set_authorization(&format!("Bearer {}", session.token));
                ask()
            }
            (answer, _) => answer,
        }
    }

    fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, Fault> {
        let text = self.text(answer)?;
        serde_json::from_str(&text).map_err(|error| {
            let cause = format!("its answer can't be read: {error}");
            Fault::new(Code::ProtocolViolation, OPERATION, cause).path(&self.url)
        })
    }

    /// The text of an answer.
    fn text(&self, answer: Answer) -> Result<String, Fault> {
        let unreached = |error: ureq::Error| {
            let cause = error.to_string();
            let (code, hint) = match error {
                ureq::Error::Timeout(_) => (Code::DeadlineExceeded, RUNNING),
                _ if cause.contains("fatal alert") => (
                    Code::AuthenticationFailed,
                    "the service takes certificates of its authorities that are valid",
                ),
                _ if cause.contains("certificate") => (
                    Code::ServerUntrusted,
                    "name its authority in SSL_CERT_FILE, or trust it in the system",
                ),
                _ => (Code::ConnectionRefused, RUNNING),
            };
            Fault::new(code, OPERATION, cause)
                .path(&self.url)
                .hint(hint)
        };
        let mut answer = answer.map_err(unreached)?;
        let is_success = answer.status().is_success();
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = body.read_to_string().map_err(unreached)?;
        if is_success {
            return Ok(text);
        }
        Err(match serde_json::from_str::<Failure>(&text) {
            Ok(failure) => failure.into(),
            Err(_) => refused(status, &self.url),
        })
    }

    /// A value as the text of a request.
    fn written(value: &impl Serialize) -> Result<String, Fault> {
        serde_json::to_string(value).map_err(|error| {
            let operation = "write the request as text";
            Fault::new(Code::InvalidArgument, operation, error.to_string())
        })
    }

    /// Submits a job. A submission whose answer is lost can be repeated with the same key.
    ///
    /// # Errors
    /// The service can't be reached, or refuses the job.
    pub fn submit(&self, submission: &Submission, key: &str) -> Result<JobDetail, Fault> {
        let text = Self::written(submission)?;
        let request = self.agent.post(format!("{}/api/v1/jobs", self.url));
        let request = request
            .header(self.credential, self.authorization())
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key);
        self.read(request.send(text))
    }

    /// Submits a job as lines (`application/x-ndjson`), which are read to their end.
    ///
    /// # Errors
    /// The lines can't be read, the service can't be reached, or it refuses the job. Nothing is
    /// submitted then.
    pub fn submit_lines(&self, lines: &mut impl Read, key: &str) -> Result<JobDetail, Fault> {
        let request = self.agent.post(format!("{}/api/v1/jobs", self.url));
        let request = request
            .config()
            // As long as the list is read.
            .timeout_global(None)
            .timeout_recv_response(Some(TIMEOUT_OF_LIST))
            .build();
        let request = request
            .header(self.credential, self.authorization())
            .header("Content-Type", "application/x-ndjson")
            .header("Idempotency-Key", key);
        self.read(request.send(SendBody::from_reader(lines)))
    }

    /// A key for a submission.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new_key() -> Result<String, Fault> {
        random::<16>()
    }

    /// A page of 1 to 1000 jobs, the newest first.
    ///
    /// # Errors
    /// The service can't be reached.
    pub fn jobs(
        &self,
        state: Option<StateName>,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<JobPage, Fault> {
        let mut path = format!("jobs?limit={limit}");
        if let Some(state) = state {
            path.push_str(&format!("&state={state}"));
        }
        if let Some(after) = after {
            path.push_str(&format!("&after={after}"));
        }
        self.get(&path)
    }

    /// A job.
    ///
    /// # Errors
    /// The service can't be reached, or has no such job.
    pub fn job(&self, id: JobId) -> Result<JobDetail, Fault> {
        self.get(&format!("jobs/{id}"))
    }

    /// Changes a job: `cancel`, `pause`, `resume` or `retry`.
    ///
    /// # Errors
    /// The service can't be reached, has no such job, or the change isn't possible.
    pub fn change(&self, id: JobId, change: &str) -> Result<JobDetail, Fault> {
        let request = self
            .agent
            .post(format!("{}/api/v1/jobs/{id}:{change}", self.url));
        let request = request.header(self.credential, self.authorization());
        self.read(request.send_empty())
    }

    /// Passes on the manifest of a job that has succeeded, part by part.
    ///
    /// # Errors
    /// The service can't be reached, or the job has none; or the fault of `take`.
    pub fn manifest(
        &self,
        id: JobId,
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let path = format!("{}/api/v1/jobs/{id}/manifest", self.url);
        let request = self.agent.get(path);
        let request = request.header(self.credential, self.authorization());
        // As long as it needs to be.
        let request = request.config().timeout_global(None).build();
        let mut answer = match request.call() {
            Ok(answer) if answer.status().is_success() => answer,
            answer => return self.text(answer).map(drop),
        };
        let mut body = answer.body_mut().as_reader();
        let mut part = vec![0; 64 << 10];
        loop {
            let read = body.read(&mut part);
            match read.map_err(|error| Fault::from_io(OPERATION, &self.url, &error))? {
                0 => return Ok(()),
                length => take(&part[..length])?,
            }
        }
    }

    /// Sets what can be set of a job.
    ///
    /// # Errors
    /// The service can't be reached, has no such job, or refuses a value.
    pub fn set(&self, id: JobId, settings: &JobSettings) -> Result<JobDetail, Fault> {
        let request = self.agent.patch(format!("{}/api/v1/jobs/{id}", self.url));
        let request = request
            .header(self.credential, self.authorization())
            .header("Content-Type", "application/json");
        self.read(request.send(Self::written(settings)?))
    }

    /// Makes a schedule, which submits a job whenever it is due. One whose answer is lost
    /// can be made again with the same key.
    ///
    /// # Errors
    /// The service can't be reached, or refuses the schedule.
    pub fn schedule(&self, schedule: &ScheduleSubmission, key: &str) -> Result<Schedule, Fault> {
        let request = self.agent.post(format!("{}/api/v1/schedules", self.url));
        let request = request
            .header(self.credential, self.authorization())
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key);
        self.read(request.send(Self::written(schedule)?))
    }

    /// A page of schedules, the newest first.
    ///
    /// # Errors
    /// The service can't be reached.
    pub fn schedules(&self, after: Option<ScheduleId>) -> Result<SchedulePage, Fault> {
        let after = after.map(|after| format!("&after={after}"));
        let after = after.unwrap_or_default();
        self.get(&format!("schedules?limit=1000{after}"))
    }

    /// Deletes a schedule. Its jobs stay.
    ///
    /// # Errors
    /// The service can't be reached, or has no such schedule.
    pub fn delete_schedule(&self, id: ScheduleId) -> Result<(), Fault> {
        let url = format!("{}/api/v1/schedules/{id}", self.url);
        let request = self.agent.delete(url);
        let request = request.header(self.credential, self.authorization());
        self.text(request.call()).map(drop)
    }

    /// Deletes a job that has ended.
    ///
    /// # Errors
    /// The service can't be reached, has no such job, or the job hasn't ended.
    pub fn delete(&self, id: JobId) -> Result<(), Fault> {
        let request = self.agent.delete(format!("{}/api/v1/jobs/{id}", self.url));
        let request = request.header(self.credential, self.authorization());
        self.text(request.call()).map(drop)
    }
    fn send<T: DeserializeOwned>(
        &self,
        request: RequestBuilder<WithBody>,
        body: &impl Serialize,
    ) -> Result<T, Fault> {
        let request = request
            .header(self.credential, self.authorization())
            .header("Content-Type", "application/json");
        self.read(request.send(Self::written(body)?))
    }

    fn remove(&self, path: &str) -> Result<(), Fault> {
        let request = self.agent.delete(format!("{}/api/v1/{path}", self.url));
        let request = request.header(self.credential, self.authorization());
        self.text(request.call()).map(drop)
    }

    /// The user's tokens; for administrators those of all.
    ///
    /// # Errors
    /// The service can't be reached, or refuses.
    pub fn tokens(&self) -> Result<TokenPage, Fault> {
        self.get("tokens")
    }

    /// Makes a token.
    ///
    /// # Errors
    /// The service can't be reached, or refuses.
    pub fn make_token(&self, request: &TokenRequest) -> Result<NewToken, Fault> {
        let to = self.agent.post(format!("{}/api/v1/tokens", self.url));
        self.send(to, request)
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// The service can't be reached, or has no such token.
    pub fn revoke_token(&self, id: &str) -> Result<(), Fault> {
        self.remove(&format!("tokens/{}", part(id)))
    }

    /// The names of the user's secrets.
    ///
    /// # Errors
    /// The service can't be reached, or refuses.
    pub fn secrets(&self) -> Result<SecretPage, Fault> {
        self.get("secrets")
    }

    /// Sets a secret.
    ///
    /// # Errors
    /// The service can't be reached, or refuses.
    pub fn set_secret(&self, name: &str, request: &SecretRequest) -> Result<SecretInfo, Fault> {
        let url = format!("{}/api/v1/secrets/{}", self.url, part(name));
        self.send(self.agent.put(url), request)
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// The service can't be reached, or has no such secret.
    pub fn remove_secret(&self, name: &str) -> Result<(), Fault> {
        self.remove(&format!("secrets/{}", part(name)))
    }
}

/// A text as one part of a path.
fn part(text: &str) -> String {
    let encoded = RemotePlace::percent_encoded(text.as_bytes());
    encoded.replace('/', "%2F")
}

fn refused(status: StatusCode, url: &str) -> Fault {
    let code = match status {
        StatusCode::UNAUTHORIZED => Code::AuthenticationFailed,
        _ => Code::ProtocolViolation,
    };
    Fault::new(code, OPERATION, format!("the answer is {status}")).path(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_go_to_this_machine_or_over_tls() {
        for url in [
            "http://127.0.0.1:2780",
            "http://127.1.2.3/",
            "http://[::1]:1/x",
            "http://localhost:2780",
            "http://localhost",
        ] {
            assert!(
                is_of_this_machine(url) && check_protection(url).is_ok(),
                "{url}"
            );
        }
        for url in [
            "http://10.0.0.1:2780",
            "http://127.0.0.1.example",
            "http://localhost.example:1",
            "http://localhost@copies.example",
            "http://copies.example/127.0.0.1",
            "HTTPS//copies.example",
            "",
        ] {
            assert!(!is_of_this_machine(url), "{url}");
            let token = ServiceLogin::Token("secret".to_owned());
            let refused = ServiceClient::log_in(Path::new(""), Some(url), &token);
            let code = refused.err().map(|fault| fault.code);
            assert_eq!(code, Some(Code::ProtectionRefused), "{url}");
        }
        assert!(!is_of_this_machine("https://copies.example"));
        assert!(check_protection("https://copies.example").is_ok());
    }
}
