//! SQL statements, one `.sql` file each; the comments there give the reasons.

use crate::db::shared_for_sqlite;

macro_rules! queries {
    ($($name:ident $file:literal;)+) => {
        $(pub(super) const $name: &str = include_str!(concat!("queries/", $file, ".sql"));)+
    };
    (shared $($name:ident $file:literal;)+) => {
        $(pub(super) const $name: &str = shared_for_sqlite!($file);)+
    };
}

queries! {
    shared
    DOCUMENT_GET "document_get";
    KEY_FIND "key_find";
    META_ADD "meta_add";
    META_GET "meta_get";
    META_MAX "meta_max";
    META_PUT "meta_put";
}

queries! {
    AGAIN "again";
    CHECKPOINT_FULL "checkpoint_full";
    CHECKPOINT_PASSIVE "checkpoint_passive";
    CHECKPOINT_TRUNCATE "checkpoint_truncate";
    DOCUMENT_PUT "document_put";
    EFFECT_INSERT "effect_insert";
    EFFECT_NOTE "effect_note";
    EFFECT_UPDATE "effect_update";
    FIRST "first";
    GATE_START "gate_start";
    INBOX_PUT "inbox_put";
    INSERT_ADMISSION "insert_admission";
    INSERT_BODY "insert_body";
    INSERT_SIGHTING "insert_sighting";
    ISSUED_FIND "issued_find";
    ISSUED_IDENTITY "issued_identity";
    ISSUED_INSERT "issued_insert";
    ISSUED_OPEN_OF "issued_open_of";
    ISSUED_RECEIPT_OF "issued_receipt_of";
    ISSUED_RELEASE "issued_release";
    ISSUED_REOPEN "issued_reopen";
    ISSUED_SUPERSEDE "issued_supersede";
    KEY_CLAIM "key_claim";
    KEY_FORGET "key_forget";
    KEY_HOLDS "key_holds";
    KEY_INDEX_READ "key_index_read";
    KEY_INDEX_TRIM "key_index_trim";
    KEY_LOG_APPEND "key_log_append";
    KEY_LOG_AROUND "key_log_around";
    KEY_LOG_FORGET "key_log_forget";
    KEY_LOG_LAST "key_log_last";
    KEY_LOG_LENGTHS "key_log_lengths";
    KEY_LOG_READ "key_log_read";
    KEY_LOG_TRIM "key_log_trim";
    KEY_PAGE_AROUND "key_page_around";
    KEY_PAGE_CLEAR "key_page_clear";
    KEY_PAGE_PUT "key_page_put";
    KEY_PAGE_READ "key_page_read";
    KEY_REGION_PUT "key_region_put";
    KEY_REGION_READ "key_region_read";
    QUOTA_TAKE "quota_take";
    REFUSED_BEFORE "refused_before";
    RUN_ADD "run_add";
    SR_LEASES_END "sr_leases_end";
    VERIFY_CLAIMED "verify_claimed";
    VERIFY_KEYS "verify_keys";
    VERIFY_KEY_LOG "verify_key_log";
    VERIFY_KEY_PAGES "verify_key_pages";
}
