//! A web server: a page on the runs of a folder, and predictions over HTTP.
//!
//! ```no_run
//! use gatework::serve::{Options, Server};
//!
//! let server = Server::bind(Options { port: Some(8080), ..Options::default() })?;
//! println!("http://{}", server.address());
//! server.run()?; // until Ctrl-C or SIGTERM
//! # Ok::<(), gatework::serve::ServeError>(())
//! ```
//!
//! A request goes through these modules, in this order:
//!
//! | module | contents |
//! |---|---|
//! | `listen` | connections: limits, time limits, graceful shutdown |
//! | `security` | who may ask: Host, Origin, token; the headers of every response |
//! | `routes` | the table of all paths |
//! | `api`, `pages`, `exports`, `events`, `session` | what answers: JSON, HTML, files of a run, server-sent events, signing in |
//! | `train` | trainings that the page starts, each a process of its own |
//! | `models`, `forecasts`, `classes` | loaded models, which are replaced when their run changes; predictions |
//! | `evaluations` | scores of automata and classifiers, for their pages |
//! | `runs` | the run folders and what is known of them |
//! | `problem` | errors as JSON (RFC 9457) |
//! | `metrics` | counters in the format of Prometheus |
//! | `openapi` | the description of the interface |
//!
//! Async threads wait for the network only. Files are read and models run on blocking threads, of which at most
//! [`Limits::waiting`] requests make use at a time; further ones get status 503 at once.

mod api;
mod classes;
mod evaluations;
mod events;
mod exports;
mod forecasts;
mod listen;
mod metrics;
mod models;
mod openapi;
mod pages;
mod problem;
mod routes;
mod runs;
mod security;
mod session;
mod train;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

use self::evaluations::Evaluations;
use self::metrics::Metrics;
use self::models::Models;
use self::problem::Problem;
use self::runs::Runs;
use self::train::Trainings;

/// The ports that are tried if none is given.
const PORTS: std::ops::Range<u16> = 8080..8100;

/// The minimum length of a token in bytes.
const MIN_TOKEN: usize = 16;

/// What is served, where and to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run folders, and folders of run folders. New runs are trained into the first folder of run folders.
    pub sources: Vec<PathBuf>,
    /// The address to listen on.
    pub address: IpAddr,
    /// The port; 0 is any free one, and `None` a free one near 8080.
    pub port: Option<u16>,
    /// Whether there are pages for people and trainings, as opposed to predictions only.
    pub page: bool,
    /// The token that requests must carry.
    pub token: Option<String>,
    /// Whether to listen on an address that other machines reach, without a token.
    pub insecure: bool,
    /// Names of this machine that a request may use, in addition to `localhost` and addresses in numbers.
    pub hosts: Vec<String>,
    /// The program that trains: `gatework`. Without it, nothing can be trained from the page.
    pub program: Option<PathBuf>,
    /// Limits.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sources: vec![gatework_train::run_folder::RUNS.into()],
            address: Ipv4Addr::LOCALHOST.into(),
            port: None,
            page: true,
            token: None,
            insecure: false,
            hosts: Vec::new(),
            program: None,
            limits: Limits::default(),
        }
    }
}

/// Limits on what requests may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Maximum number of bytes of the body of a request.
    pub body: usize,
    /// Maximum time from the first byte of a request to the first byte of its response.
    pub request: Duration,
    /// Maximum time in which a client sends the head or the body of a request.
    pub receive: Duration,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of requests that are worked on or wait for it.
    pub waiting: usize,
    /// Maximum number of trainings at the same time.
    pub trainings: usize,
    /// Maximum time to finish what was begun when the server is told to stop.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 16 << 20,
            request: Duration::from_secs(30),
            receive: Duration::from_secs(10),
            connections: 1024,
            waiting: 256,
            trainings: 2,
            shutdown: Duration::from_secs(30),
        }
    }
}

/// A server that cannot start, or that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}{}", match error.kind() {
        io::ErrorKind::AddrInUse => "; another program uses the port: choose another one, or let the server choose",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        _ => "",
    })]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Other machines would reach the server, and it would ask for no token.
    #[error("{0} can be reached from other machines; a token is needed, or permission to serve without one")]
    NeedsToken(IpAddr),
    /// The token is too short, or has characters that a header cannot carry.
    #[error(
        "the token must have at least {MIN_TOKEN} characters, all of them printable ASCII without spaces"
    )]
    BadToken,
    /// A folder to serve does not exist.
    #[error("{} does not exist; name a run folder, or a folder of run folders", .0.display())]
    Missing(PathBuf),
    /// The server failed.
    #[error("the server failed: {0}")]
    Failed(#[from] io::Error),
}

impl ServeError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NeedsToken(_) | Self::BadToken | Self::Missing(_))
    }
}

/// What all requests share.
struct Shared {
    runs: Runs,
    models: Models,
    evaluations: Evaluations,
    trainings: Trainings,
    metrics: Metrics,
    page: bool,
    token: Option<String>,
    hosts: Vec<String>,
    limits: Limits,
    places: Arc<Semaphore>,
    /// Becomes true when the server is told to stop.
    stopping: watch::Receiver<bool>,
}

impl Shared {
    /// Runs a function on a blocking thread; an error at once if too much is waiting already, and after the time limit.
    async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Shared) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            self.metrics.count_shed();
            Problem::busy(format!("{} requests are waiting", self.limits.waiting))
        })?;
        let shared = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let result = work(&shared);
            drop(place);
            result
        });
        match tokio::time::timeout(self.limits.request, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Problem::internal("the request failed in an unexpected way")),
            Err(_) => Err(Problem::busy(format!("no answer within {} s", self.limits.request.as_secs_f64()))),
        }
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Checks the options and listens. Requests are answered from [`run`](Server::run) on.
    pub fn bind(options: Options) -> Result<Server, ServeError> {
        if let Some(token) = &options.token
            && (token.len() < MIN_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(ServeError::BadToken);
        }
        if !options.address.is_loopback() && options.token.is_none() && !options.insecure {
            return Err(ServeError::NeedsToken(options.address));
        }
        // The default folder need not exist before something is trained.
        let default = Options::default().sources;
        if let Some(missing) = options.sources.iter().find(|source| !source.is_dir())
            && options.sources != default
        {
            return Err(ServeError::Missing(missing.clone()));
        }
        let listener = listen(options.address, options.port)?;
        let (stop, stopping) = watch::channel(false);
        let runs = Runs::new(options.sources);
        let program = options.program.filter(|_| options.page);
        let shared = Shared {
            trainings: Trainings::new(program, options.limits.trainings),
            models: Models::default(),
            evaluations: Evaluations::default(),
            metrics: Metrics::new(Instant::now()),
            runs,
            page: options.page,
            token: options.token,
            hosts: options.hosts,
            places: Arc::new(Semaphore::new(options.limits.waiting)),
            limits: options.limits,
            stopping,
        };
        Ok(Server { listener, shared: Arc::new(shared), stop })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or_else(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Answers requests until Ctrl-C or SIGTERM. What was begun is finished: responses are sent, and trainings that the page has
    /// started write a checkpoint.
    pub fn run(self) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .max_blocking_threads(64)
            .thread_name("serve")
            .build()?;
        let shared = Arc::clone(&self.shared);
        let result = runtime.block_on(listen::run(self.listener, Arc::clone(&self.shared), self.stop));
        shared.trainings.stop_all(shared.limits.shutdown);
        // A prediction that exceeds its time limit is not waited for.
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(result?)
    }
}

/// Listens on a port, or on the first free one near 8080, or else on any free one.
fn listen(address: IpAddr, port: Option<u16>) -> Result<TcpListener, ServeError> {
    let bind = |port| {
        let address = SocketAddr::from((address, port));
        TcpListener::bind(address).map_err(|error| ServeError::Listen { address, error })
    };
    match port {
        Some(port) => bind(port),
        None => PORTS.clone().find_map(|port| bind(port).ok()).map_or_else(|| bind(0), Ok),
    }
}
