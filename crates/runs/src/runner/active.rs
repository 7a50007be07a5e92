//! The active platform run: from the environment, else from a file, else created.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use admit_core::Millis;

use super::reason::{RefusalCode, RefusedRequest};
use crate::id_format::is_platform_run;

/// Environment variable with the platform run; overrides the file.
pub const VARIABLE: &str = "PLATFORM_RUN_ID";

/// Name of the file with the platform run.
pub const FILE: &str = "ACTIVE_RUN_ID";

/// Maximum size of that file in bytes.
const BYTES_MAX: usize = 256;

/// Source of the active platform run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveRun {
    variable: Option<String>,
    file: PathBuf,
}

impl ActiveRun {
    /// `variable` is the value of [`VARIABLE`]; without it the file is used.
    pub fn new(variable: Option<String>, file: impl Into<PathBuf>) -> Self {
        let variable = variable.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Self { variable, file: file.into() }
    }

    /// Reads the active platform run, if there is one. Blocks.
    ///
    /// # Errors
    /// When the value is not a platform run.
    pub fn read(&self) -> Result<Option<String>, RefusedRequest> {
        if let Some(value) = &self.variable {
            return check(value, VARIABLE).map(Some);
        }
        let fail = |error: io::Error| self.file_error("read", &error);
        match fs::read_to_string(&self.file) {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => check(text.trim(), &self.file.display().to_string()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// Returns the active platform run. If there is none, creates one and writes it to the file. Blocks.
    ///
    /// # Errors
    /// When the value is not a platform run, or the file cannot be written.
    pub fn resolve(&self, now: Millis) -> Result<String, RefusedRequest> {
        if let Some(run) = self.read()? {
            return Ok(run);
        }
        let created = new_platform_run(now);
        let fail = |error: io::Error| self.file_error("write", &error);
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder).map_err(fail)?;
        }
        // Write a temporary file and link it: of two concurrent creators the second reads the first's.
        let folder = self.file.parent().map(PathBuf::from).unwrap_or_default();
        let mut token = [0; 8];
        getrandom::fill(&mut token).map_err(|error| fail(io::Error::other(error)))?;
        let temporary = folder.join(format!(".{FILE}.{}", admit_core::hash::hex(&token)));
        let write = || -> io::Result<()> {
            let mut file = fs::File::create_new(&temporary)?;
            file.write_all(created.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::hard_link(&temporary, &self.file)
        };
        let linked = write();
        if let Err(error) = fs::remove_file(&temporary) {
            tracing::debug!(%error, "failed to remove a temporary file");
        }
        match linked {
            Ok(()) => Ok(created),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let run = self.read()?;
                run.ok_or_else(|| self.file_error("read", &io::Error::other("the file is empty")))
            }
            Err(error) => Err(fail(error)),
        }
    }

    fn file_error(&self, doing: &str, error: &io::Error) -> RefusedRequest {
        let detail = format!("failed to {doing} {}: {error}", self.file.display());
        RefusedRequest::new(RefusalCode::PlatformRunIdInvalid, detail)
    }
}

/// `platform_20260212T085637Z`, from the current time.
fn new_platform_run(now: Millis) -> String {
    let stamp: String =
        now.to_rfc3339_seconds().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    format!("platform_{stamp}")
}

fn check(text: &str, source: &str) -> Result<String, RefusedRequest> {
    if is_platform_run(text) && text.len() <= BYTES_MAX {
        return Ok(text.to_owned());
    }
    let detail = format!("{source} must contain a platform run such as platform_20260212T085637Z");
    Err(RefusedRequest::new(RefusalCode::PlatformRunIdInvalid, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_770_886_597_000);

    #[test]
    fn the_variable_overrides_the_file_and_a_missing_file_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs").join(FILE);
        let created = ActiveRun::new(None, &file).resolve(NOW).unwrap();
        assert_eq!(created, "platform_20260212T085637Z");
        let later = ActiveRun::new(Some("  ".to_owned()), &file).resolve(Millis(NOW.0 + 60_000));
        assert_eq!(later.unwrap(), created, "it is in the file now");
        let overridden = ActiveRun::new(Some("platform_20260101T000000Z".to_owned()), &file);
        assert_eq!(overridden.resolve(NOW).unwrap(), "platform_20260101T000000Z");
        assert_eq!(
            fs::read_dir(folder.path().join("runs")).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn an_invalid_platform_run_is_never_used_as_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, "../../etc").unwrap();
        assert!(ActiveRun::new(None, &file).resolve(NOW).is_err());
        assert!(ActiveRun::new(Some("x".to_owned()), folder.path().join("no")).read().is_err());
        fs::write(&file, "\n").unwrap();
        assert_eq!(ActiveRun::new(None, &file).read(), Ok(None));
    }
}
