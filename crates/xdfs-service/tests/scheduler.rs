//! The promises of the scheduler, kept by a service with a server.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ureq::Agent;
use xdfs::{
    Client, ClientOptions, Fault, FileJob, Job, JobPlace, RetryPolicy, ServerBuilder, ServerHandle,
    TransferOptions, TransferParameters, Way,
};
use xdfs_service::{
    JobDetail, JobId, JobLimits, Links, Service, ServiceClient, ServiceHandle, ServiceOptions,
    Sessions, StateName, Submission, WebhookOptions,
};
use xdfs_testkit::wait;

const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a file that is large.
const LARGE: u64 = 80 << 20;
/// A rate at which it takes long.
const SLOW: u64 = 200_000;

/// A server and a service that copies to it.
struct Scene {
    folder: tempfile::TempDir,
    server: ServerHandle,
    server_url: String,
    service: ServiceHandle,
    url: String,
    threads: Vec<JoinHandle<Result<(), Fault>>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.service.shutdown();
        self.server.shutdown();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn serve(root: &Path, listen: &str) -> (ServerHandle, String, JoinHandle<Result<(), Fault>>) {
    let server = ServerBuilder {
        listen: vec![listen.parse().unwrap()],
        root: root.to_owned(),
        ..ServerBuilder::default()
    };
    let server = server.bind().unwrap();
    let (handle, url) = (server.handle(), format!("xdfs://{}", server.addresses()[0]));
    (handle, url, thread::spawn(move || server.run()))
}

impl Scene {
    fn new(workers: usize, link: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let (server, server_url, serving) = serve(&root, "127.0.0.1:0");
        let service = Service::bind(ServiceOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            data: folder.path().join("data"),
            database: None,
            journals: None,
            lease: PATIENCE,
            public_url: None,
            workers,
            limits: JobLimits {
                link,
                ..JobLimits::default()
            },
            keep: None,
            webhooks: WebhookOptions::default(),
            users: None,
            secrets_key: None,
            sessions: Sessions::new(|place| Client::connect(place, ClientOptions::default())),
        });
        let service = service.unwrap();
        let (handle, url) = (service.handle(), service.url());
        Self {
            server,
            server_url,
            service: handle,
            url,
            threads: vec![thread::spawn(move || service.run()), serving],
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> ServiceClient {
        ServiceClient::new(&self.path("data"), None).unwrap()
    }

    /// A file of this size.
    fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        // Holes would be copied in no time.
        fs::write(&path, vec![7; usize::try_from(size).unwrap()]).unwrap();
        path
    }

    /// Submits the copy of a file to a server.
    fn submit(&self, source: &Path, target: &str, rate: Option<u64>) -> JobId {
        let name = target.rsplit('/').next().unwrap();
        let job = Job::File(FileJob {
            source: JobPlace::Local(source.to_owned()),
            target: JobPlace::Server(target.parse().unwrap()),
            way: Way::Any,
            options: TransferOptions {
                parameters: TransferParameters {
                    rate_bytes_per_s_max: rate,
                    ..TransferParameters::default()
                },
                ..TransferOptions::default()
            },
            retry: RetryPolicy::none(),
        });
        let submission = Submission::new(name, vec![job]);
        self.client().submit(&submission, name).unwrap().job.id
    }

    fn upload(&self, source: &Path, name: &str, rate: Option<u64>) -> JobId {
        self.submit(source, &format!("{}/{name}", self.server_url), rate)
    }

    fn job(&self, id: JobId) -> JobDetail {
        self.client().job(id).unwrap()
    }

    #[track_caller]
    fn until(&self, id: JobId, expected: impl Fn(&JobDetail) -> bool) -> JobDetail {
        let mut last = self.job(id);
        let came = wait::until(PATIENCE, || {
            last = self.job(id);
            expected(&last)
        });
        assert!(came, "{last:#?}");
        last
    }

    fn links(&self) -> Links {
        let token = fs::read_to_string(self.path("data/token")).unwrap();
        let agent: Agent = Agent::config_builder().proxy(None).build().into();
        let request = agent.get(format!("{}/api/v1/links", self.url));
        let request = request.header("Authorization", format!("Bearer {}", token.trim()));
        let text = request.call().unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn cancel(&self, ids: &[JobId]) {
        for id in ids {
            self.client().change(*id, "cancel").unwrap();
        }
        for id in ids {
            self.until(*id, |detail| detail.job.state.is_end());
        }
    }
}

fn is(state: StateName) -> impl Fn(&JobDetail) -> bool {
    move |detail| detail.job.state == state
}

#[test]
fn a_limit_is_kept_and_is_the_reason_for_which_others_wait() {
    let scene = Scene::new(4, 1);
    let file = scene.file("file", 1 << 20);
    let first = scene.upload(&file, "1", Some(SLOW));
    scene.until(first, is(StateName::Running));
    let others = ["2", "3"].map(|name| scene.upload(&file, name, None));
    for id in others {
        let waits = scene.until(id, |detail| detail.waits_for.is_some());
        assert_eq!(waits.job.state, StateName::Queued);
        let reason = waits.waits_for.unwrap();
        assert!(
            reason.contains("on this machine -> ") && reason.contains("which is the limit"),
            "{reason}"
        );
    }
    let reason = scene.job(others[1]).waits_for.unwrap();
    assert!(reason.contains("1 jobs of"), "{reason}");
    scene.cancel(&[first]);
    for id in others {
        let done = scene.until(id, is(StateName::Succeeded));
        assert_eq!(done.waits_for, None);
        assert!(done.transitions[1].reason.contains("its turn"), "{done:#?}");
    }
}

#[test]
fn a_small_job_waits_for_no_large_one() {
    let scene = Scene::new(2, 2);
    let (large, small) = (scene.file("large", LARGE), scene.file("small", 2));
    // Both run only if the second one starts before the first one is known to be large.
    let started = (0..20).find_map(|round| {
        let submit = |name| scene.upload(&large, &format!("{name}-{round}"), Some(SLOW));
        let both = ["1", "2"].map(submit);
        let second = scene.until(both[1], |detail| {
            detail.job.counts.bytes > 0 || detail.waits_for.is_some()
        });
        let are_running = second.job.counts.bytes > 0;
        if !are_running {
            scene.cancel(&both);
        }
        are_running.then_some(both)
    });
    let both = started.unwrap();
    scene.until(both[0], |detail| detail.job.counts.bytes > 0);
    let small = scene.upload(&small, "small", None);
    scene.until(small, is(StateName::Succeeded));
    let all = both.map(|id| scene.job(id));
    assert!(all.iter().all(|one| !one.job.state.is_end()), "{all:#?}");
    let made_place: Vec<_> = all
        .iter()
        .flat_map(|one| &one.transitions)
        .filter(|one| one.reason.contains("makes place for the smaller job"))
        .map(|one| one.to)
        .collect();
    assert_eq!(made_place, [StateName::Pausing, StateName::Requeueing]);
    // The last place is for smaller ones now.
    let waiting = wait::until(PATIENCE, || {
        let mut all = both.iter().map(|id| scene.job(*id));
        all.any(|one| one.waits_for.is_some_and(|why| why.contains("not large")))
    });
    assert!(waiting);
    scene.cancel(&both);
}

#[test]
fn a_server_that_is_down_is_tried_by_one_job() {
    let scene = Scene::new(4, 4);
    let file = scene.file("file", 2);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let submit = |name: &str| scene.submit(&file, &format!("xdfs://{address}/{name}"), None);
    let first = submit("1");
    scene.until(first, is(StateName::Retrying));
    let others = ["2", "3", "4"].map(submit);
    for id in others {
        let waits = scene.until(id, |detail| detail.waits_for.is_some());
        let reason = waits.waits_for.unwrap();
        assert!(reason.contains(&format!("{address} is down")), "{reason}");
    }
    let outages = scene.links().outages;
    assert_eq!(outages.len(), 1);
    assert_eq!(outages[0].server, address.to_string());
    // Another server has nothing to do with it.
    let other = scene.upload(&file, "other", None);
    scene.until(other, is(StateName::Succeeded));
    // The next try is of one job too, and the pause after it is longer.
    let mut outage = outages[0].clone();
    let came = wait::until(PATIENCE, || {
        let mut outages = scene.links().outages;
        outage = outages.remove(0);
        outage.failures == 2
    });
    assert!(came);
    let attempts = || {
        let all = others.iter().chain([&first]);
        all.map(|id| scene.job(*id).transfers[0].attempts)
            .sum::<u32>()
    };
    assert_eq!(attempts(), 2);

    let (server, _, serving) = serve(&scene.path("root"), &address.to_string());
    scene
        .client()
        .change(first, "retry")
        .unwrap_or_else(|_| scene.job(first));
    for id in others.into_iter().chain([first]) {
        scene.until(id, is(StateName::Succeeded));
    }
    server.shutdown();
    serving.join().unwrap().unwrap();
    // One try more found that it was there, and each copy was done once.
    assert_eq!(attempts(), 2 + 4);
    assert!(scene.links().outages.is_empty());
}

#[test]
fn more_jobs_run_on_a_link_as_long_as_their_rate_grows() {
    let scene = Scene::new(8, 3);
    let file = scene.file("file", 60 << 20);
    let names = ["1", "2", "3", "4", "5"];
    let jobs = names.map(|name| scene.upload(&file, name, Some(1_000_000)));
    let mut link = None;
    let grown = wait::until(PATIENCE, || {
        link = scene.links().links.pop();
        link.as_ref().is_some_and(|link| link.jobs_max == 3)
    });
    assert!(grown, "{link:#?}");
    let decision = link.unwrap().decisions.remove(0);
    assert_eq!(decision.jobs_max, 3);
    assert!(decision.reason.contains("other jobs wait"), "{decision:?}");
    let third = wait::until(PATIENCE, || {
        let running = jobs.iter().map(|id| scene.job(*id));
        running.filter(is(StateName::Running)).count() == 3
    });
    assert!(third);
    scene.cancel(&jobs);
}
