"""Equipoise: keeps prefill and decode of LLM serving in balance on mixed GPU pools."""
