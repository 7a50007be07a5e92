//! How a contract describes its wire, for the OpenAPI document: what goes in, what comes out.

use admit_core::Code;
use serde_json::{Value, json};

/// The wire of a door, in the terms of OpenAPI 3.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// One line for people.
    pub summary: &'static str,
    /// What may be sent: media types with the JSON Schema of the body.
    pub request: Vec<(&'static str, Value)>,
    /// What is answered. Every status that any layer can give at this door is among them.
    pub answers: Vec<Answer>,
}

/// One kind of answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// When it is given, for people.
    pub when: String,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The JSON Schema of the body.
    pub schema: Value,
}

impl Description {
    /// The statuses of `codes`, each with the codes that lead to it, all with a body of `schema`.
    ///
    /// `status` says what the contract makes of a code.
    pub fn refusals(
        codes: &[Code],
        status: impl Fn(Code) -> u16,
        content_type: &'static str,
        schema: &Value,
    ) -> Vec<Answer> {
        let mut answers: Vec<Answer> = Vec::new();
        for code in codes {
            let status = status(*code);
            match answers.iter_mut().find(|answer| answer.status == status) {
                Some(answer) => {
                    answer.when.push_str(", ");
                    answer.when.push_str(code.as_str());
                }
                None => answers.push(Answer {
                    status,
                    when: code.as_str().to_owned(),
                    content_type,
                    schema: schema.clone(),
                }),
            }
        }
        answers.sort_by_key(|answer| answer.status);
        answers
    }
}

/// JSON in, JSON out: all that can be said of a contract that says nothing of itself.
impl Default for Description {
    fn default() -> Self {
        let any = json!({ "type": "object" });
        let mut answers = vec![Answer {
            status: 200,
            when: "the verdict on the event".to_owned(),
            content_type: "application/json",
            schema: any.clone(),
        }];
        answers.extend(Self::refusals(Code::ALL, Code::http_status, "application/json", &any));
        Self { summary: "Send an event", request: vec![("application/json", json!({}))], answers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_named_at_the_status_it_leads_to() {
        let described = Description::default();
        for code in Code::ALL {
            let answer = described.answers.iter().find(|a| a.status == code.http_status());
            let answer = answer.unwrap_or_else(|| panic!("{code:?} has no answer"));
            assert!(answer.when.split(", ").any(|word| word == code.as_str()), "{answer:?}");
        }
    }
}
