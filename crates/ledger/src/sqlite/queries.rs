//! The statements, one `.sql` file each; the comments there say why.

macro_rules! queries {
    ($($name:ident $file:literal;)+) => {
        $(pub(super) const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)+
    };
}

queries! {
    ADMISSION_REMOVE "admission_remove";
    AGAIN "again";
    BODY "body";
    BODY_BYTES "body_bytes";
    BODY_REMOVE "body_remove";
    CHECKPOINT_FULL "checkpoint_full";
    CHECKPOINT_PASSIVE "checkpoint_passive";
    CHECKPOINT_TRUNCATE "checkpoint_truncate";
    CLAIM_FINISHED_LIST "claim_finished_list";
    CLAIM_FINISHED_PUT "claim_finished_put";
    CLAIM_FINISHED_REMOVE "claim_finished_remove";
    CLAIM_FREE "claim_free";
    CLAIM_GET "claim_get";
    CLAIM_HEAD "claim_head";
    CLAIM_HEAD_PUT "claim_head_put";
    CLAIM_NEW "claim_new";
    CLAIM_PUT "claim_put";
    CLAIM_REMOVE "claim_remove";
    CLAIM_STANDING "claim_standing";
    CLAIM_UNTIL "claim_until";
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
    KEY_CLAIM "key_claim";
    KEY_FIND "key_find";
    KEY_FORGET "key_forget";
    KEY_HOLDS "key_holds";
    KEY_INDEX_READ "key_index_read";
    KEY_IN_LOG "key_in_log";
    KEY_LOG_APPEND "key_log_append";
    KEY_LOG_FORGET "key_log_forget";
    KEY_LOG_LAST "key_log_last";
    KEY_LOG_READ "key_log_read";
    KEY_LOG_TRIM "key_log_trim";
    KEY_LOG_TRIM_TO "key_log_trim_to";
    LIST "list";
    LIST_QUARANTINE "list_quarantine";
    META_ADD "meta_add";
    META_GET "meta_get";
    META_MAX "meta_max";
    META_PUT "meta_put";
    META_REMOVE "meta_remove";
    QUOTA_GIVE_BACK "quota_give_back";
    QUOTA_TAKE "quota_take";
    RECEIPT "receipt";
    REFUSED_BEFORE "refused_before";
    RETAIN_BODIES "retain_bodies";
    RETAIN_DUE "retain_due";
    RETAIN_LATER_PUT "retain_later_put";
    RETAIN_LATER_REMOVE "retain_later_remove";
    RETAIN_ROWS "retain_rows";
    SIGHTING "sighting";
    SIGHTINGS_REMOVE "sightings_remove";
    STATUS "status";
    VERIFY_ADMISSIONS "verify_admissions";
    VERIFY_DOCUMENTS "verify_documents";
    VERIFY_KEYS "verify_keys";
    VERIFY_KEY_LOG "verify_key_log";
    VERIFY_SIGHTINGS "verify_sightings";
    STREAM "stream";
    STREAM_ENTRY "stream_entry";
    STREAM_HAS "stream_has";
    STREAM_NEWEST "stream_newest";
}
