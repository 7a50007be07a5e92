//! Supported actions and the gateway path of each.

use serde::{Deserialize, Serialize};

/// Action that a plan can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionName {
    TasksCreate,
    TasksUpdate,
    ListAddItem,
    NoteCapture,
}

impl ActionName {
    const ALL: [Self; 4] =
        [Self::TasksCreate, Self::TasksUpdate, Self::ListAddItem, Self::NoteCapture];

    /// Name on the wire.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::TasksCreate => "notion.tasks.create",
            Self::TasksUpdate => "notion.tasks.update",
            Self::ListAddItem => "notion.list.add_item",
            Self::NoteCapture => "notion.note.capture",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }

    /// Member that wraps the payload in a call; an update is sent unwrapped.
    pub(super) const fn wrapper(self) -> Option<&'static str> {
        match self {
            Self::TasksCreate => Some("task"),
            Self::TasksUpdate => None,
            Self::ListAddItem => Some("list_item"),
            Self::NoteCapture => Some("note"),
        }
    }
}

/// `[doors.intents.paths]`: gateway path of each action, below `gateway_base_url`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActionPaths {
    /// `notion.tasks.create`
    pub tasks_create: String,
    /// `notion.tasks.update`
    pub tasks_update: String,
    /// `notion.list.add_item`
    pub list_add_item: String,
    /// `notion.note.capture`
    pub note_capture: String,
}

impl Default for ActionPaths {
    fn default() -> Self {
        Self {
            tasks_create: "/v1/notion/tasks/create".to_owned(),
            tasks_update: "/v1/notion/tasks/update".to_owned(),
            list_add_item: "/v1/notion/lists/add_item".to_owned(),
            note_capture: "/v1/notion/notes/capture".to_owned(),
        }
    }
}

impl ActionPaths {
    pub(super) fn of(&self, action: ActionName) -> &str {
        match action {
            ActionName::TasksCreate => &self.tasks_create,
            ActionName::TasksUpdate => &self.tasks_update,
            ActionName::ListAddItem => &self.list_add_item,
            ActionName::NoteCapture => &self.note_capture,
        }
    }

    /// Each path with the name of its setting.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("tasks_create", self.tasks_create.as_str()),
            ("tasks_update", self.tasks_update.as_str()),
            ("list_add_item", self.list_add_item.as_str()),
            ("note_capture", self.note_capture.as_str()),
        ]
        .into_iter()
    }
}
