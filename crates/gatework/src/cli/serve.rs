//! `gatework serve`: a page on the runs of a folder, and predictions over HTTP.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gatework_train::files;
use serde_json::json;

use super::Usage;
use crate::serve::{Limits, Options, Server};

/// Show runs in a browser, train from the page, and answer predictions over HTTP
#[derive(Debug, Args)]
#[command(
    after_help = "The page and the predictions need no network and no other program. Ctrl-C ends the server; what was \
                  begun is finished, and trainings that the page has started write a checkpoint.

Examples:
  gatework serve
  gatework serve --open
  gatework serve my-runs runs/airpassengers --port 9000
  gatework serve runs/airpassengers --no-page
  curl http://127.0.0.1:8080/api/runs
  gatework serve --address 0.0.0.0 --token-file token.txt"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Serve {
    /// Run folders, or folders of run folders [default: runs]
    #[arg(value_name = "RUNS")]
    runs: Vec<PathBuf>,
    /// The port; 0 is any free one [default: the first free one from 8080 on]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The address to listen on; other than this machine's own needs --token-file or --insecure
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST.into())]
    address: IpAddr,
    /// Open the page in a browser
    #[arg(long, conflicts_with = "no_page")]
    open: bool,
    /// Predictions only: no pages, and nothing is trained
    #[arg(long)]
    no_page: bool,
    /// A file with a token that requests must carry, of at least 16 characters
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve to other machines without a token
    #[arg(long)]
    insecure: bool,
    /// A name of this machine that requests may use, in addition to localhost and numbers; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Maximum size of the body of a request in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_body: u32,
    /// Maximum number of requests that are worked on or wait; further ones get status 503
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_waiting: u32,
    /// Maximum number of open connections
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_connections: u32,
    /// Maximum time to answer a request in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// Maximum time to receive a request in seconds; idle connections are closed after it
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    receive_timeout: u32,
    /// Print the address as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub fn run(&self) -> anyhow::Result<()> {
        let server = Server::bind(self.options()?)?;
        let address = server.address();
        let url = format!("http://{address}/");
        if self.json {
            super::print_json(&json!({ "url": url, "address": address.ip(), "port": address.port() }))?;
        } else {
            print_line!("Serving {} on {url}", if self.no_page { "predictions" } else { "runs" });
            crate::output::finish()?;
        }
        status!("Ctrl-C ends the server");
        if self.open && !open(&url) {
            status!("no browser could be started; open {url}");
        }
        server.run()?;
        status!("The server has ended");
        Ok(())
    }

    fn options(&self) -> anyhow::Result<Options> {
        let default = Options::default();
        let token = match &self.token_file {
            Some(path) => Some(files::read_text(path)?.trim().to_string()),
            None => None,
        };
        if self.insecure && token.is_some() {
            return Err(Usage(
                "--insecure serves without a token; leave out one of it and --token-file".into(),
            )
            .into());
        }
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Ok(Options {
            sources: if self.runs.is_empty() { default.sources } else { self.runs.clone() },
            address: self.address,
            port: self.port,
            page: !self.no_page,
            token,
            insecure: self.insecure,
            hosts: self.allow_host.clone(),
            program: Some(std::env::current_exe()?),
            limits: Limits {
                body: (self.max_body as usize) << 20,
                request: seconds(self.timeout),
                receive: seconds(self.receive_timeout),
                connections: self.max_connections as usize,
                waiting: self.max_waiting as usize,
                ..Limits::default()
            },
        })
    }
}

/// Opens an address in the browser of this system; false if that is not possible.
fn open(url: &str) -> bool {
    use std::process::{Command, Stdio};
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}
