//! Which platform run is active: what the environment says, else what a file says, else a new one.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use admit_core::Millis;

use super::reason::{Refusal, Refused};
use crate::shape::is_platform_run;

/// The variable that names the platform run, before anything else.
pub const VARIABLE: &str = "PLATFORM_RUN_ID";

/// The file that names it where the variable does not.
pub const FILE: &str = "ACTIVE_RUN_ID";

/// Most bytes of that file.
const BYTES_MAX: usize = 256;

/// Where the active platform run is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveRun {
    named: Option<String>,
    file: PathBuf,
}

impl ActiveRun {
    /// Named by `variable`, as the environment has it, else in the file.
    pub fn new(variable: Option<String>, file: impl Into<PathBuf>) -> Self {
        let named = variable.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Self { named, file: file.into() }
    }

    /// The active platform run, if one is named. Blocks.
    ///
    /// # Errors
    /// When what is named is not a platform run.
    pub fn named(&self) -> Result<Option<String>, Refused> {
        if let Some(named) = &self.named {
            return checked(named, VARIABLE).map(Some);
        }
        let cannot = |error: io::Error| self.cannot("read", &error);
        match fs::read_to_string(&self.file) {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => checked(text.trim(), &self.file.display().to_string()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot(error)),
        }
    }

    /// The active platform run; where none is named a new one is, in the file, so that whoever comes
    /// next means the same. Blocks.
    ///
    /// # Errors
    /// When what is named is not a platform run, or nothing can be named.
    pub fn resolve(&self, now: Millis) -> Result<String, Refused> {
        if let Some(named) = self.named()? {
            return Ok(named);
        }
        let minted = minted(now);
        let cannot = |error: io::Error| self.cannot("write", &error);
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder).map_err(cannot)?;
        }
        // Written aside and linked, so that of two who mint at once the second reads the first's.
        let folder = self.file.parent().map(PathBuf::from).unwrap_or_default();
        let mut token = [0; 8];
        getrandom::fill(&mut token).map_err(|error| cannot(io::Error::other(error)))?;
        let aside = folder.join(format!(".{FILE}.{}", admit_core::hash::hex(&token)));
        let put = || -> io::Result<()> {
            let mut file = fs::File::create_new(&aside)?;
            file.write_all(minted.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::hard_link(&aside, &self.file)
        };
        let linked = put();
        if let Err(error) = fs::remove_file(&aside) {
            tracing::debug!(%error, "a file aside could not be removed");
        }
        match linked {
            Ok(()) => Ok(minted),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let named = self.named()?;
                named.ok_or_else(|| self.cannot("read", &io::Error::other("it is empty")))
            }
            Err(error) => Err(cannot(error)),
        }
    }

    fn cannot(&self, doing: &str, error: &io::Error) -> Refused {
        let detail = format!("cannot {doing} {}: {error}", self.file.display());
        Refused::new(Refusal::PlatformRunIdInvalid, detail)
    }
}

/// `platform_20260212T085637Z`, of the time of minting.
fn minted(now: Millis) -> String {
    let stamp: String =
        now.to_rfc3339_seconds().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    format!("platform_{stamp}")
}

fn checked(text: &str, place: &str) -> Result<String, Refused> {
    if is_platform_run(text) && text.len() <= BYTES_MAX {
        return Ok(text.to_owned());
    }
    let detail = format!("{place} does not name a platform run such as platform_20260212T085637Z");
    Err(Refused::new(Refusal::PlatformRunIdInvalid, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_770_886_597_000);

    #[test]
    fn the_variable_comes_before_the_file_and_the_file_before_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs").join(FILE);
        let minted = ActiveRun::new(None, &file).resolve(NOW).unwrap();
        assert_eq!(minted, "platform_20260212T085637Z");
        let later = ActiveRun::new(Some("  ".to_owned()), &file).resolve(Millis(NOW.0 + 60_000));
        assert_eq!(later.unwrap(), minted, "the file has it now");
        let named = ActiveRun::new(Some("platform_20260101T000000Z".to_owned()), &file);
        assert_eq!(named.resolve(NOW).unwrap(), "platform_20260101T000000Z");
        assert_eq!(fs::read_dir(folder.path().join("runs")).unwrap().count(), 1, "nothing aside");
    }

    #[test]
    fn what_is_no_platform_run_is_never_used_as_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, "../../etc").unwrap();
        assert!(ActiveRun::new(None, &file).resolve(NOW).is_err());
        assert!(ActiveRun::new(Some("x".to_owned()), folder.path().join("no")).named().is_err());
        fs::write(&file, "\n").unwrap();
        assert_eq!(ActiveRun::new(None, &file).named(), Ok(None));
    }
}
