//! PostgreSQL server process that tests start, stop, kill and restart.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{draw, missing, psql};

/// Timeout for start and stop of a server.
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(30);

/// Maximum number of ports to try.
const PORTS_MAX: usize = 4;

/// Poll interval.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Running server. Dropping it stops it and removes its folder.
#[derive(Debug)]
pub struct Server {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    is_durable: bool,
    process: Mutex<Option<Child>>,
}

impl Server {
    /// Starts a server without fsync, which is safe for tests that do not cut the power. `None`,
    /// with a message, if none is installed.
    pub fn start() -> Option<Self> {
        Self::start_with(false)
    }

    /// Starts a server with fsync.
    pub fn start_durable() -> Option<Self> {
        Self::start_with(true)
    }

    fn start_with(is_durable: bool) -> Option<Self> {
        let Some(bin) = find() else {
            return missing("there is no PostgreSQL server on this machine");
        };
        match Self::new(bin, is_durable).map(|server| server.begin(Self::create)) {
            Ok(Ok(server)) => Some(server),
            Ok(Err(error)) | Err(error) => {
                missing(&format!("the PostgreSQL server does not start: {error}"))
            }
        }
    }

    fn new(bin: PathBuf, is_durable: bool) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("admit-postgres-{:016x}", draw()));
        Ok(Self { bin, folder, port: free_port()?, is_durable, process: Mutex::new(None) })
    }

    /// Initialises and starts the server; tries other ports if one is taken.
    fn begin(mut self, make: impl FnOnce(&Self) -> io::Result<()>) -> io::Result<Self> {
        make(&self)?;
        for _ in 1..PORTS_MAX {
            if self.start_again().is_ok() {
                return Ok(self);
            }
            self.port = free_port()?;
        }
        self.start_again()?;
        Ok(self)
    }

    /// Starts a synchronous standby. `None`, with a message, if that is not possible.
    pub fn standby(&self) -> Option<Self> {
        let begun = Self::new(self.bin.clone(), self.is_durable)
            .and_then(|standby| standby.begin(|standby| standby.follow(self)));
        let confirmed = begun.and_then(|standby| {
            let setup =
                ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"];
            for sql in setup {
                self.run("postgres", sql).map_err(io::Error::other)?;
            }
            let followers = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            self.wait_for(followers, "1").map(|()| standby)
        });
        match confirmed {
            Ok(standby) => Some(standby),
            Err(error) => missing(&format!("no standby of the PostgreSQL server: {error}")),
        }
    }

    /// Promotes a standby, without synchronous replication.
    ///
    /// # Errors
    /// If it times out.
    pub fn promote(&self) -> io::Result<()> {
        self.run("postgres", "SELECT pg_promote(true)").map_err(io::Error::other)?;
        self.wait_for("SELECT pg_is_in_recovery()", "f")
    }

    /// Waits until a query returns this result.
    fn wait_for(&self, sql: &str, answer: &str) -> io::Result<()> {
        let began = Instant::now();
        while self.run("postgres", sql).as_deref() != Ok(answer) {
            if began.elapsed() > START_MAX {
                return Err(io::Error::other(format!("waited in vain for {answer}: {sql}")));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Runs SQL with `psql` and returns its output.
    ///
    /// # Errors
    /// Returns the error output of `psql`.
    pub fn run(&self, database: &str, sql: &str) -> Result<String, String> {
        psql(&self.url(database), sql)
    }

    /// Fast shutdown: sessions are closed, nothing is lost.
    pub fn stop(&self) {
        self.end("-INT");
    }

    /// Immediate shutdown like a crash; the next start recovers from the WAL.
    pub fn kill(&self) {
        self.end("-QUIT");
    }

    /// Restarts it on the same folder and port.
    ///
    /// # Errors
    /// If it does not accept connections in time.
    pub fn start_again(&self) -> io::Result<()> {
        let fsync = if self.is_durable { "on" } else { "off" };
        let mut command = self.as_user(&self.bin.join("postgres"), true);
        command.arg("-D").arg(self.folder.join("data"));
        command.arg("-p").arg(self.port.to_string()).arg("-k").arg(&self.folder);
        for setting in [
            "listen_addresses=127.0.0.1",
            "max_connections=200",
            &format!("fsync={fsync}"),
            "max_wal_size=256MB",
            "log_min_messages=fatal",
        ] {
            command.arg("-c").arg(setting);
        }
        let log = fs::OpenOptions::new().append(true).create(true).open(self.folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = spawn_for_the_process(command)?;
        let began = Instant::now();
        // Another server may be listening on this port.
        let data = self.folder.join("data").display().to_string();
        while psql(&self.url("postgres"), "SHOW data_directory").as_ref() != Ok(&data) {
            if began.elapsed() > START_MAX || child.try_wait()?.is_some() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                child.kill().unwrap_or_default();
                child.wait()?;
                return Err(io::Error::other(log));
            }
            thread::sleep(LOOK_EVERY);
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    fn end(&self, signal: &str) {
        let child = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut child) = child else { return };
        let signalled = Command::new("kill").arg(signal).arg(child.id().to_string()).status();
        signalled.map(drop).unwrap_or_default();
        let began = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if began.elapsed() > STOP_MAX {
                child.kill().unwrap_or_default();
                child.wait().map(drop).unwrap_or_default();
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn make_folder(&self) -> io::Result<()> {
        fs::create_dir(&self.folder)?;
        if is_root() {
            let given = Command::new("chown").arg("postgres").arg(&self.folder).status()?;
            if !given.success() {
                return Err(io::Error::other("the folder cannot be given to the user postgres"));
            }
        }
        Ok(())
    }

    /// Clones another server, to become its standby.
    fn follow(&self, other: &Self) -> io::Result<()> {
        let mut command = self.as_user(&self.bin.join("pg_basebackup"), false);
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &other.port.to_string()]);
        command.args(["-R", "-X", "stream", "-c", "fast"]);
        self.make_data(command)
    }

    fn create(&self) -> io::Result<()> {
        let mut command = self.as_user(&self.bin.join("initdb"), false);
        command.args(["-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8"]);
        self.make_data(command)
    }

    /// Creates the data folder with `command`.
    fn make_data(&self, mut command: Command) -> io::Result<()> {
        self.make_folder()?;
        command.arg("-D").arg(self.folder.join("data"));
        if !self.is_durable {
            command.arg("--no-sync");
        }
        let made = command.stdin(Stdio::null()).output()?;
        if made.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()))
    }

    /// PostgreSQL refuses to run as root, so root becomes the user `postgres`. The server ends with
    /// this process in any case.
    fn as_user(&self, program: &Path, ends_with_us: bool) -> Command {
        if !is_root() && !ends_with_us {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        if is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        if ends_with_us {
            command.args(["--pdeathsig", "QUIT"]);
        }
        command.arg(program).current_dir(&self.folder);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

/// Starts a child that ends with this process, not with the thread of one test: the parent death
/// signal is sent at the end of the thread that created the child.
fn spawn_for_the_process(mut command: Command) -> io::Result<Child> {
    let (spawned, child) = mpsc::sync_channel(1);
    thread::Builder::new().name("postgres-parent".to_owned()).spawn(move || {
        spawned.send(command.spawn()).unwrap_or_default();
        loop {
            thread::park();
        }
    })?;
    child.recv().map_err(io::Error::other)?
}

/// Newest server of Debian's packages, or the one in the search path.
fn find() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            bin.join("postgres").is_file().then_some((version, bin))
        })
        .collect();
    versions.sort();
    if let Some((_, bin)) = versions.pop() {
        return Some(bin);
    }
    let path = std::env::var_os("PATH")?;
    let has = |bin: &PathBuf| bin.join("postgres").is_file() && bin.join("initdb").is_file();
    std::env::split_paths(&path).find(has)
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}

/// Free port. Another process may take it first; then the server reports that.
fn free_port() -> io::Result<u16> {
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return Ok(port);
        }
    }
}
