//! A browser over WebDriver, for tests of pages.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use super::PATIENCE;

/// Output of the driver when it listens.
const LISTENS: &str = "started successfully on port ";

/// Chromium with its driver. Both are ended on drop.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    pub(crate) client: Client,
}

impl Browser {
    /// Starts a browser whose files are below a folder.
    pub(crate) async fn start(folder: &Path) -> Self {
        let mut command = Command::new("chromedriver");
        command.args(["--port=0", "--allowed-ips=127.0.0.1"]).env("TMPDIR", folder);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut driver =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once(LISTENS)?;
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u16>().ok()
        });
        let address = format!("http://127.0.0.1:{}", port.expect("the driver listens on a port"));
        // Later output is read, so that the driver does not wait for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let capabilities = json!({
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"]},
        });
        let Value::Object(capabilities) = capabilities else { unreachable!("an object") };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&address).await.unwrap();
        Self { driver, address, client }
    }

    /// Opens a file and waits until its script has run.
    pub(crate) async fn open(&self, page: &Path, fragment: &str) {
        // A change of the fragment alone would not load the page again.
        self.client.goto("about:blank").await.unwrap();
        self.client.goto(&format!("file://{}{fragment}", page.display())).await.unwrap();
        self.wait("document.documentElement.dataset.ready === 'true'").await;
    }

    /// Evaluates an expression.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let result = self.client.execute(&format!("return ({expression});"), Vec::new()).await;
        result.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression is true.
    pub(crate) async fn wait(&self, expression: &str) {
        let began = Instant::now();
        while self.value(expression).await != true {
            assert!(began.elapsed() < PATIENCE, "timed out: {expression}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Finds an element by selector.
    pub(crate) async fn find(&self, selector: &str) -> Element {
        let found = self.client.find(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    /// Returns the text of an element.
    pub(crate) async fn text(&self, selector: &str) -> String {
        self.find(selector).await.text().await.unwrap()
    }

    /// Types keys into the element that has the focus.
    pub(crate) async fn press(&self, keys: &str) {
        self.client.active_element().await.unwrap().send_keys(keys).await.unwrap();
    }

    /// Sends a command of the driver that WebDriver does not define.
    async fn command(&self, path: &str, body: Value) -> Value {
        let session = self.client.session_id().await.unwrap().unwrap();
        let url = format!("{}/session/{session}/{path}", self.address);
        let reply = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
        reply.json::<Value>().await.unwrap()["value"].take()
    }

    /// Sets the size of the page in pixels.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let params = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": params});
        self.command("goog/cdp/execute", command).await;
    }

    /// Returns the messages of the console since the last call: errors, and violations of a policy.
    pub(crate) async fn console(&self) -> Value {
        self.command("se/log", json!({"type": "browser"})).await
    }

    /// Ends the browser.
    pub(crate) async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver leads a process group, which the browser belongs to.
        let group = format!("-{}", self.driver.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
