//! `gatework serve`: the real server on a free port, asked over TCP by a client of a few lines, and by Chromium.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gatework_test_support::browser::Browser;
use serde_json::{Value, json};

use crate::{Place, assert_says, interrupt, place, trained};

/// A server that is killed when the test ends.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The detail of a problem.
    fn detail(&self) -> String {
        assert_says(&self.head.to_lowercase(), &["content-type: application/problem+json"]);
        assert_eq!(self.json()["status"], self.status);
        self.json()["detail"].as_str().unwrap().to_string()
    }
}

impl Server {
    fn start(place: &Place, arguments: &str) -> Server {
        let mut command = Command::new(place.program());
        command
            .current_dir(place.path(""))
            .args(["serve", "--port", "0", "--json"])
            .args(arguments.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let port = said["port"].as_u64().unwrap() as u16;
        Server { child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    /// Sends bytes and reads until the server closes the connection.
    fn send(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a response has a head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: bytes[end + 4..].to_vec() }
    }

    /// Sends a request with these headers in addition to Host.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            let _ = write!(head, "Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        self.send(&[head.as_bytes(), b"\r\n", body].concat())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    fn post(&self, path: &str, value: &Value) -> Answer {
        self.ask("POST", path, &[("Content-Type", "application/json")], value.to_string().as_bytes())
    }

    fn csv(&self, path: &str, text: &str) -> Answer {
        self.ask("POST", path, &[("Content-Type", "text/csv")], text.as_bytes())
    }

    /// Reads the events of a run until a state is reached.
    fn until(&self, name: &str, state: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let request = format!("GET /api/runs/{name}/events HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let run: Value = serde_json::from_str(data).unwrap();
            assert_ne!(run["state"], "failed", "{run}");
            if run["state"] == state {
                return run;
            }
        }
        panic!("{name} never was {state}");
    }
}

/// A folder with a finished run of each kind in `runs`.
fn runs() -> Place {
    let place = place().with_sales();
    place.run("train small.toml --seed 1 --out runs/grid");
    place.run("train sales.toml --out runs/sales");
    place.run("train iris --epochs 3 --out runs/iris");
    place
}

#[test]
fn runs_are_listed_described_and_predict() {
    let place = runs();
    let server = Server::start(&place, "");
    let list = server.get("/api/runs").json();
    let found =
        |name: &str| list["runs"].as_array().unwrap().iter().find(|run| run["name"] == name).unwrap().clone();
    for (name, kind) in [("grid", "automaton"), ("sales", "forecaster"), ("iris", "classifier")] {
        assert_eq!((&found(name)["kind"], &found(name)["state"]), (&json!(kind), &json!("finished")));
        let run = server.get(&format!("/api/runs/{name}")).json();
        assert_eq!(run["settings"]["name"], if name == "grid" { json!("small") } else { json!(name) });
        assert_eq!(server.get(&format!("/runs/{name}")).status, 200);
        let file = server.get(&format!("/api/runs/{name}/files/summary.json"));
        assert_eq!(file.json(), run["summary"]);
    }

    // The forecast over HTTP is that of the command line, to the digits that it prints.
    place.run("predict runs/sales sales.csv -o expected.csv");
    let csv = [("Content-Type", "text/csv"), ("Accept", "text/csv")];
    let forecast = server.ask("POST", "/api/runs/sales/predict", &csv, &place.read("sales.csv"));
    assert_eq!(String::from_utf8(forecast.body).unwrap(), place.text("expected.csv"));
    let values: Vec<f64> = (0..20).map(f64::from).collect();
    let request =
        json!({ "series": [{ "id": "north", "values": values }, { "id": "new", "values": values }] });
    let forecasts = server.post("/api/runs/sales/predict", &request).json();
    assert_eq!(forecasts["forecasts"][0]["values"].as_array().unwrap().len(), 7);
    assert_eq!(
        (&forecasts["forecasts"][0]["is_new"], &forecasts["forecasts"][1]["is_new"]),
        (&json!(false), &json!(true))
    );
    let rows: Vec<Value> = (0..20).map(|day| json!({ "unique_id": "north", "ds": day, "y": day })).collect();
    let of_rows = server.post("/api/runs/sales/predict?history=3", &json!({ "rows": rows })).json();
    assert_eq!(of_rows["forecasts"][0]["values"], forecasts["forecasts"][0]["values"]);
    assert_eq!(of_rows["forecasts"][0]["history"]["values"], json!([17.0, 18.0, 19.0]));
    let at = server.get("/api/runs/sales/forecast?series=north&origin=60").json();
    assert_eq!((&at["origin"], &at["last"]), (&json!(60), &json!(80)));
    assert_eq!(at["forecast"]["actual"].as_array().unwrap().len(), 7);
    let beyond = server.get("/api/runs/sales/forecast?series=north&origin=81");
    assert_says(&beyond.detail(), &["origin is 81", "to 80 values"]);
    assert_says(&server.get("/api/runs/sales/forecast?series=x").detail(), &["no series \"x\""]);
    assert_says(
        &server.get("/api/runs/sales/forecast?origin=x").detail(),
        &["the query", "origin: invalid digit"],
    );

    let classes = server
        .post("/api/runs/iris/predict", &json!({ "rows": [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]] }));
    let classes = classes.json();
    assert_eq!(classes["predictions"].as_array().unwrap().len(), 2);
    assert_eq!(
        classes["predictions"][0]["scores"].as_array().unwrap().len(),
        classes["classes"].as_array().unwrap().len()
    );

    for (name, format) in [("grid", "verilog"), ("grid", "html"), ("iris", "c"), ("sales", "onnx")] {
        let export = server.get(&format!("/api/runs/{name}/export/{format}"));
        assert_eq!(export.status, 200, "{name} {format}: {export:?}");
        assert!(export.body.len() > 500);
    }
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let evaluation = server.get("/api/runs/grid/evaluation").json();
    assert_eq!(evaluation["protocols"], place.json("evaluate runs/grid")["scores"]);
    let evaluation = server.get("/api/runs/iris/evaluation").json();
    assert_eq!(evaluation["confusion"], place.json("evaluate runs/iris")["confusion"]);
    assert_says(&server.get("/api/runs/sales/evaluation").detail(), &["its scores are in its summary"]);
    // An output with its fan-in cone, and the names of the whole circuit.
    let cone = String::from_utf8(server.get("/api/runs/grid/export/blif?output=1").body).unwrap();
    assert_says(&cone, &["c1_next"]);
    assert!(!cone.contains("c0_next"), "{cone}");
    assert_says(
        &server.get("/api/runs/grid/export/svg?output=99").detail(),
        &["no output 99", "the circuit has 4"],
    );
    assert_says(&metrics, &["gatework_requests_total{status=\"2xx\"}", "gatework_predictions_total 7"]);
}

#[test]
fn bad_requests_are_answered_with_what_is_wrong() {
    let place = runs();
    let server = Server::start(&place, "--max-body 1 --receive-timeout 1");
    let sales = "/api/runs/sales/predict";
    let iris = "/api/runs/iris/predict";
    let json_type = [("Content-Type", "application/json")];
    for (path, body, status, part) in [
        (sales, "{", 400, "line 1 column 1"),
        (sales, "", 400, "EOF"),
        (sales, "{\"series\": [{\"values\": [NaN]}]}", 400, "line 1"),
        (sales, "{\"series\": [{\"values\": [null]}]}", 400, "null"),
        (sales, "{\"series\": [{\"values\": [1, 2]}]}", 422, "series[0].id is missing"),
        (sales, "{\"series\": [{\"id\": \"north\", \"values\": [1, 2]}]}", 422, "the model reads 14"),
        (sales, "{\"series\": [{\"id\": \"north\", \"values\": [1e999]}]}", 400, "out of range"),
        (sales, "{\"rows\": [[1]]}", 400, "map"),
        (sales, "{\"rows\": [{\"unique_id\": \"a\", \"ds\": {}, \"y\": 1}]}", 422, "rows[0].ds"),
        (sales, "{}", 400, "expected either"),
        (iris, "{\"rows\": [[1, 2]]}", 422, "rows[0] has 2 values"),
        (iris, "{\"rows\": [[1, 2, 3, \"x\"]]}", 422, "expected a number"),
        (iris, "{\"rows\": [{\"x\": 1}]}", 422, "not a feature"),
        (iris, "{\"images\": [\"AAAA\"]}", 422, "not images"),
        ("/api/runs/grid/predict", "{}", 409, "an automaton"),
        ("/api/train", "{\"experiment\": \"../../etc/passwd\"}", 422, "neither a built-in"),
        ("/api/train", "{\"experiment\": \"--help\"}", 422, "neither a built-in"),
        ("/api/train", "{\"picture\": \"AAAA\"}", 422, ""),
        ("/api/train", "{\"experiment\": \"checkerboard\", \"name\": \"../x\"}", 422, "cannot be the name"),
        ("/api/train", "{\"resume\": \"grid\"}", 409, "finished"),
        ("/api/runs/grid/stop", "{}", 409, "trains no run"),
    ] {
        let answer = server.ask("POST", path, &json_type, body.as_bytes());
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert_says(&answer.detail(), &[part]);
    }
    assert_says(&server.csv(sales, "a,b\n1,2\n").detail(), &["column"]);
    let compressed = server.ask("POST", sales, &[("Content-Type", "text/csv")], &[0x1f, 0x8b, 8, 0]);
    assert_says(&compressed.detail(), &["compressed"]);
    assert_eq!(server.ask("POST", sales, &[("Content-Type", "text/plain")], b"{}").status, 415);
    assert_eq!(server.ask("POST", sales, &[], b"{}").status, 415);
    assert_eq!(server.ask("DELETE", "/api/runs", &[], b"").status, 405);
    assert_says(
        &server.ask("POST", sales, &json_type, &vec![b' '; 2 << 20]).detail(),
        &["larger than 1048576"],
    );
    let huge = format!(
        "POST {sales} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n"
    );
    assert_eq!(server.send(huge.as_bytes()).status, 413);
    // The body never comes.
    let slow = format!(
        "POST {sales} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
    );
    assert_eq!(server.send(slow.as_bytes()).status, 408);
    // The head never ends: the connection is closed.
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn names_cannot_leave_the_folder_and_are_never_markup() {
    let place = place();
    place.run("train small.toml --seed 1 --out runs/<img&src=x>");
    place.run("train small.toml --seed 1 --out outside");
    let server = Server::start(&place, "");
    for name in
        ["..%2foutside", "../outside", "..", "%2e%2e", "%2e%2e%2foutside", "a%00b", "a%0ab", "%ff", "x"]
    {
        for path in [
            format!("/api/runs/{name}"),
            format!("/runs/{name}"),
            format!("/api/runs/{name}/files/summary.json"),
        ] {
            let status = server.get(&path).status;
            assert!(status == 404 || status == 400, "{path}: {status}");
        }
    }
    for file in ["..%2f..%2fsmall.toml", "%2e%2e%2f..", "checkpoint", "unknown"] {
        assert_eq!(server.get(&format!("/api/runs/%3Cimg%26src=x%3E/files/{file}")).status, 404, "{file}");
    }
    let page = server.get("/runs/%3Cimg%26src=x%3E");
    assert_eq!(page.status, 200);
    let text = String::from_utf8(page.body).unwrap();
    assert!(!text.contains("<img&src=x>"), "{text}");
    assert_says(
        &page.head.to_lowercase(),
        &["content-security-policy: default-src 'none'; script-src 'self'"],
    );
    let missing = String::from_utf8(server.get("/runs/%3Cscript%3E").body).unwrap();
    assert!(!missing.contains("<script>\""), "{missing}");
    #[cfg(unix)]
    {
        std::fs::remove_file(place.path("runs/<img&src=x>/metrics.csv")).unwrap();
        std::os::unix::fs::symlink(place.path("small.toml"), place.path("runs/<img&src=x>/metrics.csv"))
            .unwrap();
        assert_eq!(server.get("/api/runs/%3Cimg%26src=x%3E/files/metrics.csv").status, 404);
    }
}

#[test]
fn other_hosts_other_sites_and_wrong_tokens_are_refused() {
    let place = place();
    place.write("token.txt", "0123456789abcdef\n");
    let server = Server::start(&place, "--token-file token.txt");
    let get = |headers: &[(&str, &str)]| server.ask("GET", "/api/runs", headers, b"").status;
    let right = ("Authorization", "Bearer 0123456789abcdef");
    assert_eq!(get(&[right]), 200);
    assert_eq!(get(&[]), 401);
    assert_eq!(get(&[("Authorization", "Bearer 0123456789abcdeF")]), 401);
    assert_eq!(get(&[right, ("Host", "evil.example")]), 421);
    assert_eq!(get(&[right, ("Origin", "http://evil.example")]), 403);
    assert_eq!(get(&[right, ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(server.get("/healthz").status, 200);
    let page = server.ask("GET", "/", &[("Accept", "text/html")], b"");
    assert_eq!(page.status, 303);
    let wrong = server.post("/api/session", &json!({ "token": "x" }));
    assert_eq!(wrong.status, 403);
    let signed_in = server.post("/api/session", &json!({ "token": "0123456789abcdef" }));
    assert_eq!(signed_in.status, 204);
    let cookie = signed_in.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert_says(cookie, &["HttpOnly", "SameSite=Strict"]);
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(get(&[("Cookie", cookie)]), 200);
}

#[test]
fn mistakes_at_the_start_are_said() {
    let place = place();
    place.write("token.txt", "short");
    assert_says(&place.refused(2, "serve nothing"), &["nothing does not exist"]);
    assert_says(&place.refused(2, "serve --address 0.0.0.0"), &["a token is needed", "--token-file"]);
    assert_says(&place.refused(2, "serve --token-file token.txt"), &["at least 16 characters"]);
    assert_says(&place.refused(2, "serve --port 99999"), &["--port"]);
    let server = Server::start(&place, "");
    let taken = place.refused(1, &format!("serve --port {}", server.address.port()));
    assert_says(&taken, &["cannot listen on 127.0.0.1", "another program uses the port"]);
}

#[test]
fn without_pages_there_are_predictions_only() {
    let place = trained();
    let server = Server::start(&place, "run --no-page");
    assert_eq!(server.get("/api/runs/run").json()["state"], "finished");
    for path in ["/", "/runs/run", "/train", "/api/experiments", "/api/runs/run/evaluation"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.post("/api/train", &json!({ "experiment": "checkerboard" })).status, 404);
}

#[test]
fn a_run_that_is_deleted_truncated_or_replaced_is_no_surprise() {
    let place = runs();
    let server = Server::start(&place, "");
    let values: Vec<f64> = (0..20).map(f64::from).collect();
    let request = json!({ "series": [{ "id": "north", "values": values }] });
    let first = server.post("/api/runs/sales/predict", &request).json();
    // A new version is served without a restart.
    place.run("train sales.toml --epochs 1 --seed 2 --out runs/sales --force");
    let second = server.post("/api/runs/sales/predict", &request).json();
    assert_ne!(first, second);
    // A broken version is not: the one before goes on.
    place.write("runs/sales/model.safetensors", "broken");
    assert_eq!(server.post("/api/runs/sales/predict", &request).json(), second);
    place.write("runs/sales/summary.json", "{");
    assert_eq!(server.get("/api/runs/sales").json()["state"], "damaged");
    place.write("runs/iris/circuit.json", "{\"version\": 1");
    assert_eq!(server.post("/api/runs/iris/predict", &json!({ "rows": [] })).status, 409);
    assert_eq!(server.get("/runs/iris").status, 200);
    std::fs::remove_dir_all(place.path("runs/grid")).unwrap();
    assert_eq!(server.get("/api/runs/grid").status, 404);
    assert_eq!(server.get("/runs/grid").status, 404);
    assert_eq!(server.get("/api/runs").json()["runs"].as_array().unwrap().len(), 3, "with sales.old");
}

/// A PNG image of a plus sign of 5x5 pixels on a transparent background, in base64.
const PLUS: &str = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAG0lEQVR42mNggAJpeev/DOgARRDEQccMRGsHAKKdDRWzMf+TAAAAAElFTkSuQmCC";

#[test]
fn a_training_is_watched_stopped_and_resumed() {
    let place = place();
    let mut server = Server::start(&place, "");
    let started = server.post("/api/train", &json!({ "experiment": "lizard", "seed": 1, "name": "first" }));
    assert_eq!((started.status, &started.json()["name"]), (202, &json!("first")));
    // It is stopped as soon as it can be resumed.
    while !place.path("runs/first/progress.json").exists() {
        assert_eq!(server.until("first", "training")["training"]["is_running"], true);
    }
    assert_eq!(server.post("/api/runs/first/stop", &json!({})).status, 202);
    let stopped = server.until("first", "interrupted");
    assert_eq!(stopped["training"]["is_stopped"], true);
    assert!(place.path("runs/first/checkpoint").is_dir());
    // A server that ends by Ctrl-C stops its trainings, which write checkpoints.
    assert_eq!(server.post("/api/train", &json!({ "resume": "first" })).status, 202);
    server.until("first", "training");
    interrupt(&server.child);
    assert!(server.child.wait().unwrap().success());
    assert!(!place.path("runs/first/summary.json").exists());
}

#[test]
fn a_drawing_grows() {
    let place = place();
    let server = Server::start(&place, "");
    let started = server.post("/api/train", &json!({ "picture": PLUS, "seed": 1, "name": "plus" }));
    assert_eq!((started.status, &started.json()["name"]), (202, &json!("plus")));
    let run = server.until("plus", "finished");
    assert_eq!((&run["kind"], &run["settings"]["target"]["kind"]), (&json!("automaton"), &json!("picture")));
    assert_eq!(server.get("/api/runs/plus/files/rollout.gif").status, 200);
    // The drawing is in the run folder now, and nowhere else.
    let again = server.post("/api/train", &json!({ "picture": PLUS, "seed": 2, "name": "plus" }));
    assert_eq!(again.json()["name"], "plus-2");
}

#[test]
fn a_request_that_was_begun_is_answered_when_the_server_ends() {
    let place = trained();
    let mut server = Server::start(&place, "run");
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = b"{}";
    let head = format!(
        "POST /api/runs/run/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_says(&line, &["100"]);
    Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    stream.write_all(body).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_says(&rest, &["409 Conflict", "an automaton"]);
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn beyond_the_limit_connections_are_told_to_come_back() {
    let place = trained();
    let server = Server::start(&place, "run --max-connections 2");
    let held: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut first = [0; 1];
            stream.read_exact(&mut first).unwrap();
            stream
        })
        .collect();
    let refused = server.get("/healthz");
    assert_eq!(refused.status, 503);
    assert_says(&refused.head.to_lowercase(), &["retry-after: 1"]);
    drop(held);
    // The server sees the end of the connections a little later.
    while server.get("/healthz").status == 503 {}
}

#[test]
fn every_path_of_the_description_answers() {
    let place = runs();
    let server = Server::start(&place, "");
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        if path.contains("events") {
            continue;
        }
        let concrete =
            path.replace("{name}", "sales").replace("{file}", "summary.json").replace("{format}", "onnx");
        for method in methods.as_object().unwrap().keys() {
            let answer =
                server.ask(&method.to_uppercase(), &concrete, &[("Content-Type", "application/json")], b"{}");
            let what = answer.json_or_null();
            assert!(answer.status < 500, "{method} {concrete}: {answer:?}");
            let is_unknown = answer.status == 404
                && what["detail"].as_str().is_some_and(|detail| detail.contains("nothing is here"));
            assert!(!is_unknown && answer.status != 405, "{method} {concrete}: {answer:?}");
        }
    }
}

impl Answer {
    fn json_or_null(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The number of cells whose first bit is set, in the player of a page.
const ONES: &str = "(() => { let count = 0; for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) \
                    count += get(0, y, x); return count; })()";

/// Shows the values of the watched cell, advances, and returns the live channels whose value was another one. Both drawings have
/// values.
const VALUES: &str = "(() => { draw(); const outputs = [...document.querySelectorAll('.schematic [data-id^=o]')]; \
                      const known = outputs.filter(o => o.classList.contains('one') || o.classList.contains('zero')); \
                      const channels = known.map(o => [Number(/\\d+/.exec(o.textContent)[0]), o.classList.contains('one') ? 1 : 0]); \
                      if (known.length < 2) return 'no values'; advance(1); \
                      return channels.filter(([channel, value]) => rule.live.includes(channel) && get(channel, ...watched) !== value); })()";

#[test]
fn in_chromium_people_draw_train_damage_minimise_and_download() {
    let place = place();
    let server = Server::start(&place, "");
    let Some(mut browser) = Browser::start() else { return };
    let base = format!("http://{}", server.address);
    browser.open(&format!("{base}/"));
    assert_says(&browser.text("#status"), &["There are no runs yet"]);
    browser.open(&format!("{base}/train"));
    browser.wait("document.querySelectorAll('#experiments li').length > 10");
    browser.fill("#size", "8");
    browser.fill("#draw-seed", "1");
    browser.fill("#name", "<b>plus");
    browser.point("#drawing", &[(0.31, 0.31), (0.69, 0.31)], true);
    browser.point("#drawing", &[(0.31, 0.31), (0.31, 0.69)], true);
    assert_says(&browser.text("#draw-status"), &["8 × 8 cells, 7 drawn"]);
    browser.click("#grow");
    // The page of the run shows the training, then the player.
    browser.wait("location.pathname === '/runs/%3Cb%3Eplus' && document.querySelector('#board') && machine");
    browser.wait("step > 0");
    browser.evaluate("play(false)");
    browser.evaluate("restart(); advance(rule.pause_at);");
    assert_eq!(browser.evaluate("step"), browser.evaluate("rule.pause_at"));
    let grown = browser.evaluate(ONES);
    assert_eq!(grown, 7, "what was drawn has grown");
    // The film strip begins with the seed cell and ends with the drawing; a frame takes the player to its step.
    browser.wait("film_timer === 0 && document.querySelectorAll('#film button').length > 2");
    browser.click("#film button");
    assert_eq!((browser.evaluate("step"), browser.evaluate(ONES)), (json!(0), json!(1)));
    browser.click("#film button:last-child");
    assert_eq!(
        (browser.evaluate("step"), browser.evaluate(ONES)),
        (browser.evaluate("rule.pause_at"), grown.clone())
    );
    browser.click("input[value=damage] + span");
    browser.point("#board", &[(0.31, 0.31), (0.32, 0.31)], true);
    assert_ne!(browser.evaluate(ONES), grown);
    browser.click("#minimize");
    browser.wait("document.body.textContent.includes('proved equivalent.')");
    browser.wait("document.querySelectorAll('.schematic').length === 2");
    // The wires have the values of the cell that is inspected: those of the outputs are its bits after the next step.
    browser.click("#reset");
    browser.evaluate("play(false)");
    browser.click("input[value=inspect] + span");
    browser.point("#board", &[(0.5, 0.5)], true);
    browser.wait(
        "document.querySelector('.schematic .wire.one') && document.querySelector('#live-values').checked",
    );
    assert_eq!(browser.evaluate(VALUES), json!([]));
    assert_eq!(browser.evaluate(VALUES), json!([]), "also a step later");
    browser.click("#evaluate");
    browser.wait("document.querySelector('#evaluation tbody')");
    assert_says(&browser.text("#evaluation tbody"), &["growth"]);
    let cone = "(() => { document.querySelector('.schematic [data-id^=o]').dispatchEvent(new MouseEvent('click')); \
                return document.querySelectorAll('.schematic.chosen .cone').length; })()";
    assert!(browser.evaluate(cone).as_u64() > Some(1), "the output and what it depends on");
    assert_eq!(browser.evaluate(cone), 0, "the same output again");
    let link = "[...document.querySelectorAll('.downloads a')].find(a => a.textContent === 'verilog').href";
    assert_says(browser.evaluate(link).as_str().unwrap(), &["/export/verilog?minimized=true"]);
    let verilog = browser.evaluate(&format!("fetch({link}).then(response => response.text())"));
    assert_says(verilog.as_str().unwrap(), &["module", "endmodule"]);
    browser.open(&format!("{base}/"));
    browser.wait("document.querySelectorAll('#runs li').length === 1");
    assert_eq!(browser.text("#runs strong"), "<b>plus");
    assert!(browser.errors().is_empty(), "{:?}", browser.errors());
}

#[test]
fn in_chromium_people_upload_a_table_and_read_the_forecast_and_draw_a_digit() {
    let place = runs();
    place.run("train digits --epochs 1 --out runs/digits");
    let server = Server::start(&place, "");
    let Some(mut browser) = Browser::start() else { return };
    let base = format!("http://{}", server.address);
    browser.open(&format!("{base}/runs/sales"));
    browser.wait("document.querySelector('#chart svg .band')");
    let rows: Vec<String> = (0..20).map(|day| format!("mine,{day},{}", 1000 + day)).collect();
    place.write("upload.csv", &format!("unique_id,ds,y\n{}\n", rows.join("\n")));
    browser.upload("#file", &place.path("upload.csv"));
    browser.wait("document.querySelector('#series').value === 'mine'");
    assert_says(&browser.text("#readout"), &["was not in the training data"]);
    browser.point("#chart svg", &[(0.08, 0.5)], false);
    let read = browser.text("#readout");
    assert!(read.contains(": value 1,0"), "{read}");
    browser.point("#chart svg", &[(0.97, 0.5)], false);
    assert_says(&browser.text("#readout"), &["26: forecast ", "80 % between"]);
    place.write("upload.csv", "a,b\n1,2\n");
    browser.upload("#file", &place.path("upload.csv"));
    browser.wait("document.querySelector('#chart-problem').textContent !== ''");

    browser.open(&format!("{base}/runs/digits"));
    browser.wait("machine && document.querySelector('#answer').textContent.length === 1");
    let scores = "[...document.querySelectorAll('#scores em')].map(e => e.textContent).join()";
    let blank = browser.evaluate(scores);
    browser.point("#image", &[(0.5, 0.1), (0.5, 0.9)], true);
    assert_ne!(browser.evaluate(scores), blank);

    browser.open(&format!("{base}/compare#run=sales&run=iris"));
    browser.wait("document.querySelectorAll('#figure path.soft').length === 2");
    assert_says(&browser.text("#table"), &["model", "nlinear"]);
    browser.open(&format!("{base}/runs/iris"));
    browser.wait("document.querySelectorAll('#table input[type=range]').length === 4");
    browser.click("#evaluate");
    browser.wait("document.querySelectorAll('#evaluation .confusion tbody tr').length === 3");
    browser.open(&format!("{base}/nothing/here"));
    assert_says(&browser.text("main"), &["All runs"]);
    assert!(browser.errors().is_empty(), "{:?}", browser.errors());
}
