//! The statements, one `.sql` file each; the comments there say why.

macro_rules! queries {
    ($($name:ident $file:literal;)+) => {
        $(pub(super) const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)+
    };
}

queries! {
    AGAIN "again";
    CHECKPOINT_PASSIVE "checkpoint_passive";
    CHECKPOINT_TRUNCATE "checkpoint_truncate";
    DOCUMENTS "documents";
    DOCUMENT_GET "document_get";
    DOCUMENT_PUT "document_put";
    EFFECTS "effects";
    EFFECT_GET "effect_get";
    EFFECT_HISTORY "effect_history";
    EFFECT_INSERT "effect_insert";
    EFFECT_NOTE "effect_note";
    EFFECT_OPEN "effect_open";
    EFFECT_UPDATE "effect_update";
    FIRST "first";
    GATE_START "gate_start";
    INSERT_ADMISSION "insert_admission";
    INSERT_BODY "insert_body";
    INSERT_SIGHTING "insert_sighting";
    BODY "body";
    KEY_CLAIM "key_claim";
    KEY_FIND "key_find";
    KEY_IN_LOG "key_in_log";
    KEY_LOG_APPEND "key_log_append";
    KEY_LOG_READ "key_log_read";
    KEY_LOG_TRIM "key_log_trim";
    LIST "list";
    LIST_QUARANTINE "list_quarantine";
    META_GET "meta_get";
    META_PUT "meta_put";
    QUOTA_TAKE "quota_take";
    RECEIPT "receipt";
    REFUSED_BEFORE "refused_before";
    SIGHTING "sighting";
    STATUS "status";
}
