"""The closed loop in virtual time: traffic, engines, scrapes, decisions, pods.

Everything that decides is the operator's own: `observe` reads the scrapes, `decide` decides, and its memory passes through the
same dictionary that the operator keeps in status. What is modelled here is the world around: engines (`simulate.engine`),
Prometheus or a direct scrape, Deployments, the scheduler, start-up and drain.
"""
