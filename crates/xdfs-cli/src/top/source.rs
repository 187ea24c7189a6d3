//! Where the figures come from: the metrics of a server or a service, and the jobs of a service.

use std::time::Instant;

use xdfs::metrics::{METRICS_PORT, Scrape};
use xdfs::{Code, Fault};
use xdfs_service::{JobDetail, ServiceClient, StateName, read_metrics, running_url};

use crate::flags::TopFlags;
use crate::jobs::folder;

/// Most jobs that are looked at: more don't fit any screen.
const JOBS_MAX: u32 = 50;

/// What was read at a time.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    /// Of what.
    pub(super) url: String,
    pub(super) metrics: Scrape,
    /// The jobs that run; `None` of a server, and of a service of another user.
    pub(super) jobs: Option<Vec<JobDetail>>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Source {
    url: String,
    /// The service of this user, if it is that one.
    service: Option<ServiceClient>,
}

impl Source {
    /// What the flags name.
    ///
    /// # Errors
    /// The URL is none of metrics.
    pub(super) fn find(flags: &TopFlags) -> Result<Self, Fault> {
        let own = folder(&flags.data);
        let own_url = own.as_ref().ok().and_then(|folder| running_url(folder));
        let url = match (&flags.url, &own_url) {
            (Some(url), _) => base(url)?,
            (None, Some(own)) => own.clone(),
            (None, None) if flags.data.data.is_some() => {
                let fault = Fault::new(Code::NotFound, "find the service", "none runs there");
                return Err(fault.hint("start it with `xdfs service`"));
            }
            (None, None) => format!("http://127.0.0.1:{METRICS_PORT}"),
        };
        let is_own = own_url.as_ref() == Some(&url);
        let service = own.ok().filter(|_| is_own || flags.data.data.is_some());
        let service = service.and_then(|folder| ServiceClient::new(&folder, Some(&url)).ok());
        Ok(Self { url, service })
    }

    /// Reads everything.
    ///
    /// # Errors
    /// It can't be reached, or has no metrics.
    pub(super) fn read(&self) -> Result<Reading, Fault> {
        let metrics = read_metrics(&self.url)?;
        let is_of_xdfs = |prefix: &str| {
            let mut samples = metrics.samples.iter();
            samples.any(|sample| sample.name.starts_with(prefix))
        };
        let is_service = is_of_xdfs("xdfs_service_");
        if !is_service && !is_of_xdfs("xdfs_server_") {
            let cause = "its metrics are those of another program";
            let fault = Fault::new(Code::ProtocolViolation, "watch", cause);
            return Err(fault.path(&self.url));
        }
        let jobs = match &self.service {
            Some(client) if is_service => Some(running(client)?),
            _ => None,
        };
        Ok(Reading {
            at: Instant::now(),
            url: self.url.clone(),
            metrics,
            jobs,
        })
    }
}

/// The jobs that run, with their transfers.
fn running(client: &ServiceClient) -> Result<Vec<JobDetail>, Fault> {
    let mut details = Vec::new();
    for state in [StateName::Running, StateName::Retrying] {
        let page = client.jobs(Some(state), None, JOBS_MAX)?;
        for job in page
            .jobs
            .into_iter()
            .take(JOBS_MAX as usize - details.len())
        {
            match client.job(job.id) {
                Ok(detail) => details.push(detail),
                // It was deleted meanwhile.
                Err(fault) if fault.code == Code::NotFound => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(details)
}

/// The URL without the path of metrics.
fn base(url: &str) -> Result<String, Fault> {
    let with_scheme = match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    };
    let trimmed = with_scheme.trim_end_matches('/');
    let base = trimmed.strip_suffix("/metrics").unwrap_or(trimmed);
    match base.strip_prefix("http://") {
        Some(host) if !host.is_empty() => Ok(base.trim_end_matches('/').to_owned()),
        _ => {
            let cause = "it is no URL of metrics: they are read by plain HTTP";
            let fault = Fault::new(Code::InvalidArgument, "watch", cause).path(url);
            Err(fault.hint("write http://HOST:PORT; to another machine, go through ssh -L"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_metrics() {
        for text in [
            "http://a:1",
            "http://a:1/",
            "http://a:1/metrics",
            "http://a:1/metrics/",
            "a:1",
        ] {
            assert_eq!(base(text).unwrap(), "http://a:1", "{text}");
        }
        for bad in ["https://a:1", "xdfs://a", "http://", "http:///metrics"] {
            assert_eq!(base(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }
}
