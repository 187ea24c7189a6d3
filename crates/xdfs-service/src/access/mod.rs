//! Who may use the service: its owner by the token in the state folder, users by their passwords,
//! both by API tokens, and browsers by the cookie that a login gives. Everybody else is refused.
//!
//! ```text
//!   people    the owner, the users and their passwords, the administrators
//!   owner     the token file of the state folder
//!   token     API tokens, with a scope and an end
//!   challenge logins by keys, and the sessions that they begin
//!   people    the certificates of clients, which TLS has verified
//!   browser   logins, cookies, and which pages may send requests
//! ```

mod browser;
mod challenge;
pub(crate) mod owner;
mod people;
pub(crate) mod record;
pub(crate) mod secret;
mod token;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use xdfs::{Code, Fault};

use self::browser::Links;
pub(crate) use self::browser::{is_of_own_page, local_path};
pub use self::challenge::{Challenge, KeyLogin, KeySession};
use self::challenge::{Challenges, SESSION_PREFIX};
pub(crate) use self::challenge::{binding, host_of};
pub(crate) use self::owner::read_token;
pub(crate) use self::people::People;
pub use self::people::ServiceUsers;
pub use self::record::{Scope, Token};
pub(crate) use self::secret::{Secret, digest, hex, random};
pub(crate) use self::token::new_token;
pub use self::token::{NewToken, TokenPage, TokenRequest};
use crate::channel::{Chain, Channel};
use crate::store::Store;

/// The user of a request, and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) scope: Scope,
    is_administrator: bool,
    pub(crate) proof: Proof,
}

/// The proof by which a request was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The token in the state folder.
    File,
    /// The password.
    Password,
    /// The cookie with this digest.
    Session(String),
    /// The API token with this id.
    Token(String),
    /// The certificates of the connection.
    Certificate(Chain),
}

impl User {
    /// Whether it sees and changes the jobs of all users.
    pub(crate) fn sees_all(&self) -> bool {
        self.is_administrator && self.scope == Scope::Admin
    }

    /// Whether it sees and changes what belongs to this user.
    pub(crate) fn sees(&self, owner: &str) -> bool {
        self.sees_all() || self.name == owner
    }

    /// The only owner whose jobs it sees; `None` for all.
    pub(crate) fn only(&self) -> Option<&str> {
        (!self.sees_all()).then_some(&*self.name)
    }

    /// Whether its jobs may use the files and the credentials of the user of the process.
    pub(crate) fn is_administrator(&self) -> bool {
        self.is_administrator
    }
}

/// Who may use the service.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) people: Arc<People>,
    token: Secret,
    links: Links,
    challenges: Challenges,
    /// The names and ports under which clients reach it.
    hosts: Vec<String>,
    /// That of them under which it is reached by TLS.
    tls_host: Option<String>,
    cookie: String,
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

impl Access {
    /// The access to a service with this state folder and port, which listens with TLS at another
    /// address too, and whose other name is that of a public URL. Browsers send the cookies of one
    /// port to others.
    ///
    /// # Errors
    /// The token can't be read or made, or the URL is none of HTTP.
    pub(crate) fn new(
        folder: &Path,
        port: u16,
        tls: Option<SocketAddr>,
        public_url: Option<&str>,
        people: Arc<People>,
    ) -> Result<Self, Fault> {
        let local = |port| ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}"));
        let mut hosts = local(port).to_vec();
        if let Some(address) = tls {
            hosts.extend(local(address.port()));
            hosts.push(address.to_string());
        }
        if let Some(url) = public_url {
            let host = host_of(url).ok_or_else(|| {
                let cause = "it isn't http://HOST:PORT or https://HOST:PORT";
                Fault::new(Code::InvalidArgument, "use the public URL", cause).path(url)
            })?;
            hosts.push(host);
        }
        let tls_url = public_url.filter(|url| url.starts_with("https://"));
        Ok(Self {
            people,
            challenges: Challenges::new()?,
            hosts,
            tls_host: tls_url.and_then(host_of),
            token: owner::token(folder)?,
            links: Links::default(),
            cookie: format!("xdfs-service-{port}"),
        })
    }

    fn proved(&self, name: String, scope: Scope, proof: Proof) -> User {
        User {
            is_administrator: self.people.is_administrator(&name),
            name,
            scope,
            proof,
        }
    }

    /// The user of a request; `None` if it has no right to be answered.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`](xdfs::Code::LimitExceeded) with a time to wait, after wrong
    /// passwords; or users, sessions or tokens can't be read.
    pub(crate) async fn user(
        &self,
        store: &Store,
        peer: SocketAddr,
        method: &Method,
        headers: &HeaderMap,
        channel: &Channel,
    ) -> Result<Option<User>, Fault> {
        if headers.contains_key(AUTHORIZATION) {
            let (way, proof) = header(headers, AUTHORIZATION)
                .and_then(|text| text.split_once(' '))
                .unwrap_or_default();
            return match way.to_ascii_lowercase().as_str() {
                "bearer" if self.token.is(proof) => {
                    let owner = self.people.owner.clone();
                    Ok(Some(self.proved(owner, Scope::Admin, Proof::File)))
                }
                "bearer" if proof.starts_with(SESSION_PREFIX) => {
                    self.user_by_session(store, digest(proof)).await
                }
                "bearer" => self.user_of_token(store, proof).await,
                "basic" => self.user_of_password(peer, proof).await,
                _ => Ok(None),
            };
        }
        // Pages of another port are of the same site, whatever the cookie says about sites; and a
        // browser shows its certificate to whatever page makes it ask.
        if !method.is_safe() && !is_of_own_page(headers) {
            return Ok(None);
        }
        match self.user_of_session(store, headers).await? {
            Some(user) => Ok(Some(user)),
            None => self.user_of_certificate(peer, channel).await,
        }
    }

    /// The user of the certificates that the client has shown.
    async fn user_of_certificate(
        &self,
        peer: SocketAddr,
        channel: &Channel,
    ) -> Result<Option<User>, Fault> {
        let Some(chain) = channel.certificates() else {
            return Ok(None);
        };
        if channel.user().is_none() {
            let checked = self.people.check_certificate(peer, Arc::clone(chain));
            let Some(name) = checked.await? else {
                return Ok(None);
            };
            channel.logged_in(&name);
        }
        // Again for each request: a connection may last.
        let name = channel.user().unwrap_or_default();
        let is_good = self.people.has_certificate(name, chain);
        let proof = || Proof::Certificate(Arc::clone(chain));
        Ok(is_good.then(|| self.proved(name.to_owned(), Scope::Admin, proof())))
    }

    async fn user_of_password(&self, peer: SocketAddr, proof: &str) -> Result<Option<User>, Fault> {
        let text = BASE64.decode(proof.trim()).ok();
        let text = text.and_then(|text| String::from_utf8(text).ok());
        let Some((name, password)) = text.as_deref().and_then(|text| text.split_once(':')) else {
            return Ok(None);
        };
        let (name, password) = (name.to_owned(), password.to_owned());
        let checked = self.people.check(peer, name.clone(), password).await?;
        Ok(checked.map(|_| self.proved(name, Scope::Admin, Proof::Password)))
    }

    /// Whether the proof of a user would be accepted again: for answers that last.
    ///
    /// # Errors
    /// Users, sessions or tokens can't be read.
    pub(crate) async fn still_accepts(&self, store: &Store, user: &User) -> Result<bool, Fault> {
        match &user.proof {
            Proof::File => Ok(true),
            Proof::Password => self.people.knows(&user.name),
            Proof::Session(digest) => {
                let owner = self.owner_of_session(store, digest).await?;
                Ok(owner.is_some_and(|owner| owner == user.name))
            }
            Proof::Token(id) => {
                let row = store.token(id).await?;
                Ok(row.is_some() && self.people.knows(&user.name)?)
            }
            Proof::Certificate(chain) => Ok(self.people.has_certificate(&user.name, chain)),
        }
    }
}
